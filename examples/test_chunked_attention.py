from chunked_attention import chunked_attention


def test_chunked_attention(equivalent):
    equivalent(chunked_attention, kernel="linear_attention")
