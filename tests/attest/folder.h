// A folder of a test's own, and small files in it.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace fractus::attest {

struct Folder : testing::Test {
  std::filesystem::path folder;

  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "fractus-attest-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = std::filesystem::canonical(name);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::filesystem::path write(const std::string& name, const std::string& text, mode_t mode = 0644) const {
    const std::filesystem::path file = folder / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    chmod(file.c_str(), mode);
    return file;
  }
  static std::string text_of(const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
  }
};

// What `work` throws; empty where it throws nothing.
template <class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace fractus::attest
