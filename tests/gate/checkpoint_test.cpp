// A checkpoint is read without executing it, whatever it holds, and a change of its form is refused.
#include "gate/checkpoint.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>

#include "gate/numbers.h"
#include "tests/gate/checkpoint_file.h"
#include "tests/gate/example.h"

namespace fractus::gate {
namespace {

using namespace file;
using nlohmann::json;

// A name of its own for each: to cut a file short and write it again waits for the disk.
std::filesystem::path put(const Folder& folder, const std::string& bytes) {
  static int files = 0;
  return folder.put(std::to_string(++files) + ".pt", bytes);
}

// What is wrong with the bytes as a checkpoint; empty where nothing is.
std::string fault_of(const Folder& folder, const std::string& bytes) {
  try {
    form_of(put(folder, bytes));
  } catch (const Unreadable& fault) {
    EXPECT_FALSE(fault.remedy.empty());
    return fault.what();
  }
  return "";
}

std::string fault_of_pickle(const std::string& value) {
  try {
    pickle_from(whole(value));
  } catch (const Unreadable& fault) {
    return fault.what();
  }
  return "";
}

void expect_in(const std::string& words, const std::string& text) {
  EXPECT_NE(text.find(words), std::string::npos) << "wanted: " << words << "\ngot: " << text;
}

// Protects: what is read is what stands there. Everything below changes one thing of this file.
TEST(Checkpoint, IsRead) {
  const Folder folder;
  const Form form = form_of(folder.put("x.pt", checkpoint()));
  EXPECT_EQ(form.tensors, (std::map<std::string, Tensor>{{"w", {"float32", {2, 3}}}, {"b", {"float32", {3}}}}));
  EXPECT_EQ(*form.config, (json{{"n_heads", 4}, {"lr", 1}}));
  EXPECT_TRUE(form.tied->empty());
}

// Protects: a name of anything that could run is refused by that name, and is never looked up. `canary` would be
// written by a reader that executes.
TEST(Checkpoint, ExecutesNothing) {
  const Folder folder;
  const std::string canary = (folder.path / "canary").string();
  const auto with = [](const std::string& value) { return checkpoint(pickle("w", value)); };
  expect_in("\"os.system\"", fault_of(folder, with(call(global("os", "system"), {text("touch " + canary)}))));
  expect_in("\"posix.system\"", fault_of(folder, with(call(global("posix", "system"), {text("touch " + canary)}))));
  expect_in("\"builtins.eval\"", fault_of(folder, with(call(global("__builtin__", "eval"), {text("1")}))));
  expect_in("\"builtins.getattr\"", fault_of(folder, with(global("builtins", "getattr"))));
  expect_in("\"torch.load\"", fault_of(folder, with(global("torch", "load"))));
  expect_in("\"torch.os.system\"", fault_of(folder, with(global("torch", "os.system"))));
  expect_in("\"numpy.core.multiarray.scalar\"", fault_of(folder, with(global("numpy.core.multiarray", "scalar"))));
  // The same by protocol 4's opcode, by class instantiation, by a persistent id, and by extension registry.
  expect_in("\"os.system\"", fault_of(folder, with(text("os") + text("system") + "\x93")));
  expect_in("opcode 0x81", fault_of(folder, with(global("collections", "OrderedDict") + ")\x81")));
  expect_in("opcode 0x69", fault_of(folder, with("(" + text("x") + "ios\nsystem\n")));
  expect_in("opcode 0x82", fault_of(folder, with("\x82\x01")));
  expect_in("persistent id", fault_of(folder, with(tuple({text("module"), text("os")}) + "Q")));
  expect_in("a call of torch.float32", fault_of(folder, with(call(global("torch", "float32"), {text("x")}))));
  expect_in("a call of what is no function", fault_of(folder, with(call(text("os"), {text("x")}))));
  EXPECT_FALSE(std::filesystem::exists(canary));
}

// Protects: neither depth, nor circles, nor counts that the file does not back cost more than they should.
TEST(Checkpoint, BoundsWhatAPickleMayAsk) {
  const Folder folder;
  std::string nested = text("x");
  for (int i = 0; i < 100'000; ++i) nested += '\x85';
  expect_in("deeper than", fault_of(folder, checkpoint(pickle("w", nested))));
  expect_in("too deep", fault_of_pickle(std::string(100'000, '(') + "t"));
  expect_in("deeper than", fault_of(folder, checkpoint(pickle("w",
                                                              "]q\x05h\x05"
                                                              "a"))));  // a list that holds itself
  // 2^40 values of 40 lists, each twice in the next.
  std::string doubled = text("x") + "q\x05";
  for (int i = 0; i < 40; ++i) doubled += "h\x05\x86q\x05";
  expect_in("more than", fault_of(folder, checkpoint(pickle("w", doubled))));
  // A long list that is copied again and again.
  std::string copies = "(](";
  for (int i = 0; i < 50'000; ++i) copies += "K\x01";
  copies += "eq\x06";
  for (int i = 0; i < 1000; ++i) copies += global("torch", "Size") + "h\x06\x85R";
  expect_in("more than", fault_of_pickle(copies + "t"));
  expect_in("bytes wanted", fault_of_pickle("X\xff\xff\xff\xff"
                                            "x"));
  expect_in("bytes wanted", fault_of_pickle("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                                            "x"));
  expect_in("a frame beyond", fault_of_pickle("\x95\xff\xff\xff\xff\xff\xff\xff\xff"));
  expect_in("memo 7 before", fault_of_pickle("h\x07"));
  expect_in("no mark", fault_of_pickle("t"));
  expect_in("an empty stack", fault_of_pickle("(a"));
  expect_in("an empty stack", fault_of_pickle("N(\x85"));
  expect_in("values left over", fault_of_pickle("NN"));
  expect_in("bytes behind the end", fault_of_pickle("N.N"));
  expect_in("no UTF-8", fault_of_pickle(text("\xff")));
  expect_in("twice in one dict", fault_of_pickle(dict({{text("a"), "N"}, {text("a"), "N"}})));
  // More values than any checkpoint has.
  expect_in("more than 2000000 values", fault_of_pickle("(" + std::string(2'100'000, 'N') + "t"));
}

// Protects: a tensor lies in memory that the file has, as the file describes it once.
TEST(Checkpoint, BoundsViews) {
  const Folder folder;
  const auto with = [&](const std::string& its) {
    return fault_of(folder,
                    checkpoint(whole(dict({{text("model_state"), dict({{text("w"), its}})}, {text("config"), "}"}}))));
  };
  EXPECT_EQ(with(tensor(storage("0", 6), 1, {2, 2}, {3, 1})), "");
  EXPECT_EQ(with(tensor(storage("0", 6), 0, {5, 6}, {0, 1})), "");
  expect_in("reaches to element 6 of storage 0, which has 6", with(tensor(storage("0", 6), 1, {2, 3}, {3, 1})));
  expect_in("beyond all memory", with(tensor(storage("0", 6), 0, {1LL << 40, 1LL << 40}, {1LL << 40, 1})));
  expect_in("beyond all memory", with(tensor(storage("0", 6), 0, {1LL << 62, 4}, {0, 0})));
  expect_in("no count", with(tensor(storage("0", 6), -1, {2}, {1})));
  expect_in("no count", with(tensor(storage("0", 6), 0, {-2}, {1})));
  expect_in("no count", with(tensor(storage("0", 6), 0, {2}, {-1})));
  expect_in("different length", with(tensor(storage("0", 6), 0, {2}, {1, 1})));
  expect_in("no short tuple",
            with(tensor(storage("0", 6), 0, std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 1))));
  expect_in("beyond all memory", with(tensor(storage("0", INT64_MAX), 0, {2}, {1})));
  expect_in("is to have 28 bytes", with(tensor(storage("0", 7), 0, {2}, {1})));
  expect_in("no \"data/9\"", with(tensor(storage("9", 6), 0, {2}, {1})));
  expect_in("no \"data/../../etc/passwd\"", with(tensor(storage("../../etc/passwd", 6), 0, {2}, {1})));
  expect_in("is no tensor", with(count(3)));
  EXPECT_NE(fault_of_pickle(tuple({storage("0", 6), storage("0", 7)})), "");
  EXPECT_EQ(fault_of_pickle(tuple({storage("0", 6), storage("0", 6)})), "");
}

// Protects: the archive is the one that torch would read, and no other reader's.
TEST(Checkpoint, RefusesArchivesOfTwoMeanings) {
  const Folder folder;
  const auto with = [&](const Entry& more) {
    std::vector<Entry> all = entries();
    all.push_back(more);
    return fault_of(folder, zip(all));
  };
  EXPECT_EQ(with({"run/more", "x"}), "");
  expect_in("already exists", with({"run/data.pkl", pickle("other")}));
  expect_in("two entries", with({"run/DATA.pkl", pickle("other")}));  // torch looks names up without regard to case
  expect_in("one folder", with({"walk/data.pkl", pickle("other")}));
  expect_in("one folder", with({"data.pkl", pickle("other")}));
  expect_in("torch.save does not write", with({"run/../../x", "x"}));
  expect_in("torch.save does not write", with({"/etc/passwd", "x"}));
  expect_in("torch.save does not write", with({"run\\x", "x"}));
  expect_in("compressed", with({"run/more", "x", 8}));
  expect_in("damaged", with({"run/more", "x", 0, "run/less"}));  // the header says another name than the directory
  expect_in("TorchScript", with({"run/constants.pkl", "x"}));
  EXPECT_NE(with({"run/more", floats({1, 2, 3, 4, 5, 6}), 0, "", 2}), "");  // overlaps run/data/0
  expect_in("behind its directory", fault_of(folder, zip(entries(), "PK\5\6")));
  expect_in("behind its directory", fault_of(folder, checkpoint() + "x"));
  expect_in("behind its directory", fault_of(folder, checkpoint().substr(0, checkpoint().size() - 1)));
  // A directory of 2^40 entries, in a file without any.
  const std::string record = "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) +
                             little(1ULL << 40, 8) + little(1ULL << 40, 8) + little(100, 8) + little(4, 8);
  expect_in("wanted 1000000",
            fault_of(folder, "PK\3\4" + record + "PK\6\7" + little(0, 4) + little(4, 8) + little(1, 4) + "PK\5\6" +
                                 little(0, 4) + little(0xffff, 2) + little(0xffff, 2) + little(0xffffffff, 4) +
                                 little(0xffffffff, 4) + little(0, 2)));
  std::vector<Entry> big = entries();
  big[1].bytes = "big";
  expect_in("not little-endian", fault_of(folder, zip(big)));
  for (const char* version : {"0", "11", "x", "", "3x"}) {
    std::vector<Entry> unknown = entries();
    unknown[4].bytes = version;
    expect_in("torch loads 1 to 10", fault_of(folder, zip(unknown)));
  }
}

// Protects: the formats that are no checkpoint are named, with what to do.
TEST(Checkpoint, NamesOtherFormats) {
  const Folder folder;
  expect_in("bare pickle", fault_of(folder,
                                    "\x80\x02\x8a\nl\xfc\x9c"
                                    "F\xf9 j\xa8P\x19."));
  expect_in("does not begin as a zip", fault_of(folder, "safetensors"));
  expect_in("empty", fault_of(folder, ""));
  expect_in("no 'config'", fault_of(folder, checkpoint(whole(dict({{text("model_state"), "}"}})))));
  expect_in("neither", fault_of(folder, checkpoint(whole(dict({{text("state_dict"), "}"}})))));
  expect_in("is no dict", fault_of(folder, checkpoint(whole("]"))));
  expect_in("both with and without", fault_of(folder, checkpoint(pickle("_orig_mod.b"))));
  expect_in("holds a tensor", fault_of(folder, checkpoint(pickle("w", tensor(storage("0", 6), 0, {2}, {1})))));
  EXPECT_THROW(form_of(folder.path), Unreadable);
  EXPECT_THROW(form_of(folder.path / "absent.pt"), Unreadable);
}

// Protects: every cut of a file is refused: a checkpoint is written in full or is none.
TEST(Checkpoint, EveryTruncationIsRefused) {
  const Folder folder;
  const std::string bytes = checkpoint();
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_NE(fault_of(folder, bytes.substr(0, length)), "") << length;
}

// Protects: any byte changed is refused, or what is read of the form is as it was. Bytes that do neither are of data,
// of times, of names of other entries; the form that comes back is compared, so this fails where a flip is admitted
// with another meaning: a dtype, an extent or a name that was changed is one unless the checksum of data.pkl finds it.
TEST(Checkpoint, EveryByteFlippedIsSeenOrIdle) {
  const Folder folder;
  const std::string bytes = checkpoint();
  const json was = schema_of(form_of(put(folder, bytes)));
  std::size_t refused = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (const int bit : {0, 3, 7}) {
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      try {
        EXPECT_EQ(schema_of(form_of(put(folder, flipped))), was) << i << " " << bit;
      } catch (const Unreadable&) {
        ++refused;
      }
    }
  EXPECT_GT(refused, bytes.size());
}

// Protects the machine that reads pickles from whatever it may be given: with no checksum in between, it throws
// Unreadable or comes back.
TEST(Checkpoint, FuzzedPickles) {
  EXPECT_TRUE(rc::check("pickle", [] {
    std::string bytes = pickle();
    const int edits = *rc::gen::inRange(1, 6);
    for (int i = 0; i < edits && !bytes.empty(); ++i) {
      const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
      switch (*rc::gen::inRange(0, 4)) {
        case 0: bytes[at] = *rc::gen::arbitrary<char>(); break;
        case 1: bytes.erase(at, *rc::gen::inRange<std::size_t>(1, 20)); break;
        case 2: bytes.insert(at, bytes.substr(*rc::gen::inRange<std::size_t>(0, bytes.size()), 30)); break;
        default:
          bytes.insert(at,
                       *rc::gen::element<std::string>("(", "t", "R", "Q", "b", "a", "e", "u", "s", ".", "\x85", "\x93",
                                                      "\x90", "h\x01", "q\x01", "\x94", "G\x7f\xf0\0\0\0\0\0\0"));
      }
    }
    try {
      const Pickle read = pickle_from(bytes);
      RC_ASSERT(read.root < read.values.size());
      for (const View& view : read.views)
        RC_ASSERT(view.empty() || (view.last() + 1) * view.item_bytes <=
                                      static_cast<std::int64_t>(read.storages.at(view.storage).bytes()));
    } catch (const Unreadable&) {
    }
  }));
  EXPECT_TRUE(rc::check("archive", [] {
    const Folder folder;
    std::string bytes = checkpoint();
    for (int i = *rc::gen::inRange(1, 6); i > 0; --i)
      bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
    fault_of(folder, bytes);
  }));
}

struct Pair {
  Folder folder;
  std::filesystem::path before = folder.put("old.pt", checkpoint());
  Answer against(const std::string& bytes, CheckpointQuestion question = {}) {
    question.before = before;
    question.after = folder.put("new.pt", bytes);
    return check_checkpoint(question);
  }
  static std::string with(const std::string& w, const std::string& b) {
    return checkpoint(whole(dict({{text("model_state"), dict({{text("w"), w}, {text("b"), b}})},
                                  {text("config"), dict({{text("n_heads"), count(4)}, {text("lr"), count(1)}})}})));
  }
};

// Protects: each change of the form is refused on its own and by name, and the same form is admitted.
TEST(Checkpoint, EachChangeIsRefused) {
  Pair pair;
  const std::string w = tensor(storage("0", 6), 0, {2, 3}, {3, 1}), b = tensor(storage("1", 3), 0, {3}, {1});
  EXPECT_TRUE(pair.against(checkpoint()).admitted());
  EXPECT_TRUE(pair.against(pair.with(w, b)).admitted());
  EXPECT_TRUE(pair.against(checkpoint(pickle("_orig_mod.w"))).admitted());
  EXPECT_TRUE(
      pair.against(pair.with(tensor(storage("0", 6), 0, {2, 3}, {1, 2}), b)).admitted());  // strides are not form
  const Answer renamed = pair.against(checkpoint(pickle("v")));
  ASSERT_EQ(renamed.refusals.size(), 2u);
  expect_in("1 tensor missing in the new checkpoint: \"w\"", text_of(renamed));
  expect_in("1 tensor that the old checkpoint does not have: \"v\"", text_of(renamed));
  expect_in("within them", text_of(pair.against(checkpoint(pickle("block._orig_mod.w")))));
  expect_one(pair.against(pair.with(tensor(storage("0", 6), 0, {3, 2}, {2, 1}), b)), "checkpoint",
             "\"w\" (3, 2), was (2, 3)");
  expect_one(pair.against(pair.with(tensor(storage("0", 6, "IntStorage"), 0, {2, 3}, {3, 1}), b)), "checkpoint",
             "\"w\" int32, was float32");
  expect_one(pair.against(pair.with(w, tensor(storage("0", 6), 0, {3}, {1}))), "checkpoint",
             "\"b = w\" share memory in the new");
}

// Protects: a setting that no shape shows, such as the number of heads, does not change unseen; one that is named may.
TEST(Checkpoint, ConfigMayChangeWhereItIsNamed) {
  Pair pair;
  const auto config = [](std::int64_t heads, std::int64_t rate) {
    return checkpoint(pickle("w", dict({{text("n_heads"), count(heads)}, {text("lr"), count(rate)}})));
  };
  expect_one(pair.against(config(8, 1)), "checkpoint", "\"n_heads\" \"8\", was \"4\"");
  expect_one(pair.against(config(8, 2), {.config_may_change = {"lr"}}), "checkpoint", "1 settings: \"n_heads\"");
  EXPECT_TRUE(pair.against(config(4, 2), {.config_may_change = {"lr"}}).admitted());
  expect_one(pair.against(config(4, 2), {.config_may_change = {"l"}}), "checkpoint", "\"lr\"");
  expect_one(pair.against(checkpoint(pickle("w", "}"))), "checkpoint", "\"lr\" is gone; \"n_heads\" is gone");
}

// Protects: a schema stands for the file that it was written from, in either place, and a wrong one is refused.
TEST(Checkpoint, ASchemaStandsInEitherPlace) {
  Pair pair;
  const json schema = schema_of(form_of(pair.before));
  const auto as_json = pair.folder.put("old.json", schema.dump());
  EXPECT_TRUE(check_checkpoint({as_json, pair.before}).admitted());
  EXPECT_TRUE(check_checkpoint({pair.before, as_json}).admitted());
  expect_in("has none", text_of(check_checkpoint({pair.before, as_json, true})));
  const auto wrong = [&](const char* pointer, const json& value) {
    json edited = schema;
    edited[json::json_pointer(pointer)] = value;
    return text_of(check_checkpoint({pair.folder.put("x.json", edited.dump()), pair.before}));
  };
  expect_in("(4)", wrong("/tensors/0/shape", json{4}));
  expect_in("float64", wrong("/tensors/0/dtype", "float64"));
  expect_in("unknown dtype", wrong("/tensors/0/dtype", "float33"));
  expect_in("not of counts", wrong("/tensors/0/shape", json{-3}));
  expect_in("not of counts", wrong("/tensors/0/shape", json{3.5}));
  expect_in("two tensors named", wrong("/tensors/0/name", "w"));
  expect_in("unknown member", wrong("/tensor", json::array()));
  expect_in("\"format\"", wrong("/format", "x"));
  expect_in("which it does not list", wrong("/tied", json::parse(R"([["w","x"]])")));
  expect_in("share memory in the old", wrong("/tied", json::parse(R"([["w","b"]])")));
  const std::string twice = R"({"format":"x","format":")" + std::string(schema_format) + R"(","tensors":[]})";
  EXPECT_FALSE(check_checkpoint({pair.folder.put("x.json", twice), pair.before}).admitted());
}

// Protects: a NaN or an infinity of any floating dtype is found, in a view that shows it and in no other, and integers
// of the same bits are not.
TEST(Checkpoint, NumbersAreLookedAt) {
  Pair pair;
  const auto with = [&](std::vector<float> values, const std::string& w) {
    std::vector<Entry> all = entries(
        whole(dict({{text("model_state"), dict({{text("w"), w}, {text("b"), tensor(storage("1", 3), 0, {3}, {1})}})},
                    {text("config"), dict({{text("n_heads"), count(4)}, {text("lr"), count(1)}})}})));
    all[2].bytes = floats(values);
    return text_of(pair.against(zip(all), {.numbers = true}));
  };
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const std::string w = tensor(storage("0", 6), 0, {2, 3}, {3, 1});
  EXPECT_EQ(with({1, 2, 3, 4, 5, 6}, w), "");
  expect_in("\"w\" 1 NaN and 0 infinite, the first at (1, 1)", with({1, 2, 3, 4, nan, 6}, w));
  expect_in("\"w\" 0 NaN and 2 infinite, the first at (0, 0)", with({inf, 2, 3, 4, 5, -inf}, w));
  const std::string column = tensor(storage("0", 6), 1, {2, 1}, {3, 1});
  expect_in("1 NaN and 0 infinite, the first at (1, 0)", with({1, 2, 3, 4, nan, 6}, column));
  EXPECT_EQ(with({nan, 2, 3, 4, 5, inf}, column).find("finite"), std::string::npos);
  const std::string transposed = tensor(storage("0", 6), 0, {3, 2}, {1, 3});
  expect_in("the first at (2, 0)", with({1, 2, nan, 4, 5, 6}, transposed));
  EXPECT_EQ(with({nan, nan, nan, 1, 1, 1}, tensor(storage("0", 6, "IntStorage"), 0, {2, 3}, {3, 1})).find("finite"),
            std::string::npos);
}

// Protects: the data that numbers are read from is what was written: its checksum is verified.
TEST(Checkpoint, DamagedDataIsRefused) {
  Pair pair;
  std::string bytes = checkpoint();
  bytes[bytes.find(floats({1, 2, 3, 4}))] ^= 1;
  EXPECT_TRUE(pair.against(bytes).admitted());
  expect_one(pair.against(bytes, {.numbers = true}), "checkpoint", "damaged");
}

// Protects: where an element of the storage stands in a view, against the plain enumeration of all its elements.
TEST(Checkpoint, IndexInAView) {
  EXPECT_TRUE(rc::check("index", [] {
    View view{.item_bytes = 4, .offset = *rc::gen::inRange(0, 4)};
    const auto rank = *rc::gen::inRange<std::size_t>(0, 4);
    view.shape = *rc::gen::container<std::vector<std::int64_t>>(rank, rc::gen::inRange(1, 4));
    // Nested strides with gaps, in any order of dimensions; some 0.
    view.strides.assign(rank, 0);
    std::int64_t step = 1;
    std::vector<std::size_t> order(rank);
    for (std::size_t i = 0; i < rank; ++i) order[i] = i;
    for (std::size_t i = rank; i > 1; --i) std::swap(order[i - 1], order[*rc::gen::inRange<std::size_t>(0, i)]);
    for (const std::size_t i : order) {
      step += *rc::gen::inRange(0, 3);
      if (*rc::gen::inRange(0, 5) == 0) continue;
      view.strides[i] = step;
      step *= view.shape[i];
    }
    std::map<std::int64_t, std::vector<std::int64_t>> shown;
    std::vector<std::int64_t> index(rank, 0);
    for (bool more = true; more;) {
      std::int64_t element = view.offset;
      for (std::size_t i = 0; i < rank; ++i) element += index[i] * view.strides[i];
      shown.emplace(element, index);
      more = false;
      for (std::size_t i = rank; i-- > 0 && !more;) more = ++index[i] < view.shape[i] || (index[i] = 0, false);
    }
    for (std::int64_t element = 0; element <= view.last() + 2; ++element) {
      const auto found = index_in(view, element);
      RC_ASSERT(found.has_value() == shown.contains(element));
      if (!found) continue;
      std::int64_t back = view.offset;
      for (std::size_t i = 0; i < rank; ++i) back += (*found)[i] * view.strides[i];
      RC_ASSERT(back == element);
    }
  }));
}

}  // namespace
}  // namespace fractus::gate
