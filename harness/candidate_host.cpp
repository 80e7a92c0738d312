// The process of one candidate from outside, as its parent sees it.
#include <fmt/format.h>

#include <algorithm>

#include "harness/fork_server.h"
#include "reports/words.h"

namespace fractus::process {

using namespace std::chrono_literals;
using protocol::Json;

void Noted::add(const outside::Loaded& more) {
  constexpr std::size_t most = 10'000;
  const std::scoped_lock lock(mutex_);
  const auto note = [this](std::string text) {  // every process of the form says it
    auto& unbound = loaded_.unbound;
    if (std::find(unbound.begin(), unbound.end(), text) == unbound.end()) unbound.push_back(std::move(text));
  };
  for (const auto& [path, digest] : more.digests)
    if (loaded_.digests.emplace(path, digest).first->second != digest)
      note(fmt::format("{} changed between two times that it was read", visible(path)));
  for (const std::string& text : more.unbound) note(visible(text));
  if (loaded_.digests.size() > most || loaded_.unbound.size() > most)
    throw std::runtime_error(fmt::format("more than {} files were read as code", most));
}

void Noted::add(const Json& answer) {
  if (!answer.is_object() || (!answer.contains("loaded") && !answer.contains("unbound"))) return;
  add(outside::Loaded{answer.value("loaded", std::map<std::string, std::string>{}),
                      answer.value("unbound", std::vector<std::string>{})});
}

outside::Loaded Noted::all() const {
  const std::scoped_lock lock(mutex_);
  return loaded_;
}

void Host::load(const std::string& kernel, const std::string& candidate, std::chrono::milliseconds limit) {
  FormInfo form{.kernel = kernel, .name = candidate, .role = "candidate"};
  const Reply reply = child.exchange({{"op", "load"}, {"kernel", kernel}, {"candidate", candidate}}, {}, limit);
  const Json& body = reply.content.body;
  try {
    if (reply.status != Status::ok) {
      ending = form.trouble = reply.message;
    } else if (body.contains("not_there")) {
      throw outside::NotThere(visible(body.at("not_there").get<std::string>()),
                              body.at("known").get<std::vector<std::string>>());
    } else if (body.contains("form")) {
      form = read_form(body.at("form"));
      noted.add(body);
      form.kernel = kernel;
      form.name = candidate;
      form.role = "candidate";
      form.summary = visible(form.summary);
    } else {
      form.trouble = body.at(body.contains("raised") ? "raised" : "error").get<std::string>();
    }
  } catch (const Json::exception& error) {
    form.trouble = fmt::format("it answered what cannot be used: {}", error.what());
  }
  if (!form.trouble.empty()) {
    const std::string printed(tail_of(visible_lines(child.tail), 2000));
    form.trouble = fmt::format("it cannot be loaded: {}", visible_lines(form.trouble));
    if (!printed.empty()) form.trouble += fmt::format("\nThe last that it printed:\n{}", printed);
  }
  forms = {std::move(form)};
}

Json Host::ask(const Json& question, std::span<const int> descriptors) {
  const std::scoped_lock lock(mutex);
  if (!ending.empty()) throw CandidateGone(ending);
  // A fork and its end take milliseconds; the margin is for a busy machine.
  const Reply reply = child.exchange(question, descriptors, 20s);
  if (reply.status != Status::ok) {
    ending = fmt::format("the process that had loaded it has ended: {}", visible(reply.message));
    throw CandidateGone(ending);
  }
  if (const auto error = reply.content.body.find("error"); error != reply.content.body.end())
    throw CandidateGone(fmt::format("the process that had loaded it cannot serve: {}", visible(error->dump())));
  return reply.content.body;
}

}  // namespace fractus::process
