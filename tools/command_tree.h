// What a command line offers, as plain values: read from the parser itself, so that completions and
// manual pages say what --help says.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tutti::tools {

struct OptionFacts {
  std::vector<std::string> names;  // with their dashes; a positional has one, without
  std::string valueName;           // "INT", "TEXT"; empty for a flag
  std::string description;
  std::vector<std::string> choices;  // words that the value may be, where the help lists them
  bool isRequired = false;
};

struct CommandFacts {
  std::string name;  // "" for the program itself
  std::string description;
  std::string footer;  // examples, exit codes
  std::vector<OptionFacts> options;
  std::vector<OptionFacts> positionals;
};

// The command itself, without what is below it.
CommandFacts describeCommand(const CLI::App& command);
// Its subcommands, in the order of the help.
std::vector<CommandFacts> describeSubcommands(const CLI::App& app);

// "sum, prod or max" -> sum prod max: the words with which a description begins, if it lists any;
// the list ends at the first item that is no single word.
std::vector<std::string> leadingChoices(const std::string& description);

}  // namespace tutti::tools
