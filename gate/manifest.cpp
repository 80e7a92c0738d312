#include "gate/manifest.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <optional>
#include <set>

#include "attest/files.h"
#include "attest/strict_json.h"
#include "gate/checkpoint.h"

namespace fractus::gate {
namespace {

using nlohmann::json;

constexpr const char* name = "manifest";
constexpr std::size_t most_gpus = 4096, most_path_bytes = 4096;
constexpr std::uint64_t token_bytes = 4;  // int32

class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(fmt::format("{}: {}", name_, what));
  }

  const json& member(const json& object, const std::string& place, const char* key) const {
    if (!object.is_object()) fail(fmt::format("{} is no object", place));
    const auto found = object.find(key);
    if (found == object.end()) fail(fmt::format("{} has no '{}'", place, key));
    return *found;
  }

  std::uint64_t count(const json& value, const std::string& place) const {
    if (value.is_number_unsigned()) return value.get<std::uint64_t>();
    // Python writes a count that went through a float as 4096.0; up to 2^53 each whole number has a double of its own.
    if (value.is_number_float())
      if (const double real = value.get<double>(); real >= 0 && real <= 0x1p53 && std::trunc(real) == real)
        return static_cast<std::uint64_t>(real);
    fail(fmt::format("{} is {}, wanted a whole number of tokens", place, in_quotes(value.dump())));
  }

  std::string path(const json& value, const std::string& place) const {
    if (!value.is_string()) fail(fmt::format("{} is {}, wanted a path", place, in_quotes(value.dump())));
    const std::string& text = value.get_ref<const std::string&>();
    if (text.empty() || text.size() > most_path_bytes || text.find('\0') != text.npos)
      fail(fmt::format("{} is no path: {}", place, in_quotes(text)));
    // A path that climbs out means another file wherever the manifest is copied to; an absolute one says what it means.
    for (const std::filesystem::path& part : std::filesystem::path(text))
      if (part == "..")
        fail(
            fmt::format("{} climbs out of the manifest's folder: {}; write the absolute path", place, in_quotes(text)));
    return text;
  }

  Resume resume(const json& gpu, const std::string& place) const {
    Resume resume{.start_token = count(member(gpu, place, "start_token"), place + ".start_token"),
                  .tokens_processed = count(member(gpu, place, "tokens_processed"), place + ".tokens_processed"),
                  .checkpoint = path(member(gpu, place, "checkpoint"), place + ".checkpoint")};
    const json& shard = member(gpu, place, "shard");
    if (shard.is_object()) {
      resume.shard = path(member(shard, place + ".shard", "path"), place + ".shard.path");
      if (shard.contains("tokens")) resume.shard_tokens = count(shard["tokens"], place + ".shard.tokens");
    } else {
      resume.shard = path(shard, place + ".shard");
    }
    return resume;
  }

 private:
  std::string name_;
};

// Tokens in a file of int32, or why not.
std::uint64_t tokens_of(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (error || !std::filesystem::exists(status))
    throw Unreadable("it is not there", "copy the shard to where the manifest says, or mend the manifest");
  if (!std::filesystem::is_regular_file(status)) throw Unreadable("it is no regular file", "name the shard itself");
  const std::uintmax_t bytes = std::filesystem::file_size(file, error);
  if (error) throw Unreadable(error.message(), "make it readable");
  char start[6] = {};
  std::ifstream(file, std::ios::binary).read(start, sizeof start);
  if (std::string_view(start, sizeof start) == "\x93NUMPY")
    throw Unreadable("it is a .npy file, whose header would be read as tokens", "write the tokens alone, as int32");
  if (bytes % token_bytes != 0)
    throw Unreadable(fmt::format("its {} bytes are no whole number of int32 tokens", bytes),
                     "copy it again: it is cut short");
  return bytes / token_bytes;
}

struct Check {
  const ManifestQuestion& question;
  std::uint64_t slice;  // B·T
  Answer answer;
  std::map<std::string, std::optional<Refusal>> checkpoints;  // read once each

  void refuse(std::string fact, std::string remedy) {
    answer.refusals.push_back({name, std::move(fact), std::move(remedy)});
  }

  std::filesystem::path resolved(const std::string& path) const { return question.file.parent_path() / path; }

  std::string batch_text() const {
    return fmt::format("{} = {} x {} (batch x sequence)", slice, question.batch, question.sequence);
  }

  void offset(const std::string& gpu, const Resume& resume) {
    if (resume.start_token != resume.tokens_processed)
      refuse(fmt::format("gpu {}: start_token {} is not tokens_processed {}", gpu, resume.start_token,
                         resume.tokens_processed),
             "take both from the checkpoint that it resumes from; do not round either");
    const std::uint64_t rest = resume.start_token % slice;
    if (rest == 0) return;
    const std::uint64_t below = resume.start_token - rest;
    std::uint64_t above = 0;
    const std::string up =
        __builtin_add_overflow(below, slice, &above) ? "" : fmt::format(", {} above skips {}", above, slice - rest);
    refuse(fmt::format("gpu {}: start_token {} is no multiple of {}; nearest offsets: {} below reads {} tokens again{}",
                       gpu, resume.start_token, batch_text(), below, rest, up),
           "resume with a batch whose tokens divide the offset, and change the batch at an offset that both divide");
  }

  void shard(const std::string& gpu, const Resume& resume) {
    std::uint64_t tokens = 0;
    try {
      tokens = tokens_of(resolved(resume.shard));
    } catch (const Unreadable& fault) {
      answer.refusals.push_back(
          {name, fmt::format("gpu {}: shard {}: {}", gpu, in_quotes(resume.shard), fault.what()), fault.remedy});
      return;
    }
    if (resume.shard_tokens && *resume.shard_tokens != tokens) {
      refuse(fmt::format("gpu {}: shard {} has {} tokens, the manifest says {}", gpu, in_quotes(resume.shard), tokens,
                         *resume.shard_tokens),
             "copy the shard again, or name the right one");
      return;
    }
    // A step reads one token more than it advances: the targets are the slice moved on by one.
    if (resume.start_token < tokens && tokens - resume.start_token > slice) return;
    refuse(fmt::format("gpu {}: the next slice, of {} + 1 tokens from {}, does not lie within shard {}, which has {}",
                       gpu, batch_text(), resume.start_token, in_quotes(resume.shard), tokens),
           "name the shard that holds this offset; a shard that is used up is followed by the next one");
  }

  void checkpoint(const std::string& gpu, const Resume& resume) {
    auto [held, fresh] = checkpoints.try_emplace(resume.checkpoint);
    if (fresh) {
      const std::filesystem::path file = resolved(resume.checkpoint);
      try {
        read_checkpoint(file);
      } catch (const Unreadable& fault) {
        held->second = refusal_of(fault, file, name);
      }
    }
    if (!held->second) return;
    Refusal refusal = *held->second;
    refusal.fact = fmt::format("gpu {}: checkpoint {}", gpu, refusal.fact);
    answer.refusals.push_back(std::move(refusal));
  }
};

}  // namespace

Manifest manifest_from(std::string_view text, const std::string& manifest_name) {
  const json parsed = attest::strict_json(text, manifest_name, {.bytes = 4 << 20, .values = 200'000, .depth = 16});
  const Reader reader(manifest_name);
  const json& gpus = reader.member(parsed, "the manifest", "gpus");
  if (!gpus.is_object() || gpus.empty() || gpus.size() > most_gpus)
    reader.fail(fmt::format("gpus is no object of 1 to {} gpus by their ids", most_gpus));
  Manifest manifest{.step_tokens = reader.count(reader.member(parsed, "the manifest", "step_tokens"), "step_tokens")};
  if (manifest.step_tokens == 0) reader.fail("step_tokens is 0");
  std::set<std::string> numbers;
  for (const auto& [id, gpu] : gpus.items()) {
    const std::string number = id.substr(std::min(id.find_first_not_of('0'), id.size()));
    if (id.empty() || id.size() > 64) reader.fail("gpus has an id that is empty or long");
    if (id.find_first_not_of("0123456789") == id.npos && !numbers.insert(number).second)
      reader.fail(fmt::format("gpus has the id {} twice, in two spellings", in_quotes(id)));
    manifest.gpus.emplace(id, reader.resume(gpu, "gpus." + id));
  }
  return manifest;
}

Answer check_manifest(const ManifestQuestion& question) {
  Check check{question};
  if (question.batch == 0 || question.sequence == 0 ||
      __builtin_mul_overflow(question.batch, question.sequence, &check.slice)) {
    check.refuse(fmt::format("a slice of {} x {} tokens (batch x sequence) is none", question.batch, question.sequence),
                 "give the batch and the sequence that the run resumes with");
    return check.answer;
  }
  Manifest manifest;
  try {
    manifest = manifest_from(read_whole(question.file), in_quotes(question.file.string()));
  } catch (const std::exception& e) {
    check.refuse(e.what(), "write the manifest again as docs/open-heart.md shows it");
    return check.answer;
  }
  std::map<std::string, std::string> readers;  // of each shard
  for (const auto& [id, resume] : manifest.gpus) {
    const std::size_t before = check.answer.refusals.size();
    check.offset(in_quotes(id), resume);
    check.shard(in_quotes(id), resume);
    check.checkpoint(in_quotes(id), resume);
    if (check.answer.refusals.size() == before)
      check.answer.checked.push_back(
          {name, fmt::format("gpu {}: resumes at token {}, step {} of its shard", in_quotes(id), resume.start_token,
                             resume.start_token / check.slice)});
    if (const auto [other, first] = readers.emplace(resume.shard, id); !first)
      check.answer.checked.push_back(
          {name, fmt::format("gpus {} and {} read the same shard", in_quotes(other->second), in_quotes(id))});
  }
  // What a step of all processes has in tokens may be counted for one process or for all; a changed batch changes it.
  if (manifest.step_tokens != check.slice &&
      (manifest.step_tokens % check.slice != 0 || manifest.step_tokens / check.slice != manifest.gpus.size()))
    check.answer.checked.push_back(
        {name, fmt::format("step_tokens {} is neither {} nor that times {} gpus: the batch changes here",
                           manifest.step_tokens, check.batch_text(), manifest.gpus.size())});
  return check.answer;
}

}  // namespace fractus::gate
