#include "tools/command_tree.h"

#include <CLI/App.hpp>
#include <algorithm>
#include <cctype>

namespace tutti::tools {
namespace {

bool isWord(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_';
  });
}

OptionFacts describeOption(const CLI::Option& option) {
  OptionFacts facts;
  for (const std::string& name : option.get_snames()) facts.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) facts.names.push_back("--" + name);
  const bool isPositional = facts.names.empty();
  if (isPositional) facts.names.push_back(option.get_name(true));
  facts.description = option.get_description();
  facts.isRequired = option.get_required();
  if (option.get_items_expected_max() > 0) {
    // "INT:INT in [1 - 4096]": the kind is enough here, the help has the limits.
    const std::string type = option.get_type_name();
    facts.valueName = type.substr(0, type.find_first_of(":{ "));
    if (facts.valueName.empty()) facts.valueName = "VALUE";
    facts.choices = leadingChoices(facts.description);
  }
  return facts;
}

}  // namespace

std::vector<std::string> leadingChoices(const std::string& description) {
  std::vector<std::string> choices;
  for (size_t at = 0; at < description.size();) {
    const size_t comma = std::min(description.find(", ", at), description.size());
    std::string item = description.substr(at, comma - at);
    at = comma + 2;
    if (item.starts_with("or ")) item.erase(0, 3);
    if (isWord(item)) {
      choices.push_back(item);
      continue;
    }
    const size_t split = item.find(" or ");  // "scatter or sendrecv" ends the list
    if (split != std::string::npos && isWord(item.substr(0, split)) &&
        isWord(item.substr(split + 4))) {
      choices.push_back(item.substr(0, split));
      choices.push_back(item.substr(split + 4));
    }
    break;
  }
  return choices.size() > 1 ? choices : std::vector<std::string>{};
}

CommandFacts describeCommand(const CLI::App& command) {
  CommandFacts facts;
  facts.name = command.get_parent() == nullptr ? "" : command.get_name();
  facts.description = command.get_description();
  facts.footer = command.get_footer();
  for (const CLI::Option* option : command.get_options()) {
    OptionFacts each = describeOption(*option);
    (option->nonpositional() ? facts.options : facts.positionals).push_back(std::move(each));
  }
  return facts;
}

std::vector<CommandFacts> describeSubcommands(const CLI::App& app) {
  std::vector<CommandFacts> all;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    all.push_back(describeCommand(*command));
  }
  return all;
}

}  // namespace tutti::tools
