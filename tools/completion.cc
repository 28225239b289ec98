// tutti completion: what a shell needs to complete this command's words, made from its own help.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <map>
#include <memory>
#include <string>

#include "tools/command.h"
#include "tools/command_tree.h"

namespace tutti::tools {
namespace {

std::string join(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// In single quotes for a shell that ends and reopens them around a quote (bash, zsh).
std::string escapeQuotes(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return escaped;
}

std::string wordsOf(const CommandFacts& command) {
  std::string words;
  for (const OptionFacts& option : command.options) words += join(option.names, " ") + " ";
  for (const OptionFacts& each : command.positionals) words += join(each.choices, " ") + " ";
  while (words.ends_with(' ')) words.pop_back();
  return words;
}

void printBash(const CommandFacts& program, const std::vector<CommandFacts>& commands) {
  std::vector<std::string> names;
  for (const CommandFacts& command : commands) names.push_back(command.name);
  fmt::print(
      "# bash completion for tutti, made by `tutti completion bash`\n"
      "_tutti() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} words\n"
      "  local command=${{COMP_WORDS[1]}}\n"
      "  ((COMP_CWORD > 1)) || command=\n"
      "  case $command:$previous in\n");
  for (const CommandFacts& command : commands) {
    for (const OptionFacts& option : command.options) {
      if (option.valueName.empty()) continue;
      const std::string before = command.name + ":";
      fmt::print("    {}{}) words='{}' ;;\n", before, join(option.names, ("|" + before).c_str()),
                 join(option.choices, " "));
    }
  }
  fmt::print("    *) case $command in\n      '') words='{} {}' ;;\n", join(names, " "),
             wordsOf(program));
  for (const CommandFacts& command : commands) {
    fmt::print("      {}) words='{}' ;;\n", command.name, wordsOf(command));
  }
  fmt::print(
      "    esac ;;\n"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "}}\n"
      "complete -o default -F _tutti tutti\n");
}

// zsh's _arguments: a colon and brackets have a meaning inside a specification.
std::string escapeZsh(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']') escaped += '\\';
    escaped += c;
  }
  return escapeQuotes(escaped);
}

std::string zshAction(const OptionFacts& facts) {
  return facts.choices.empty() ? "_files" : "(" + join(facts.choices, " ") + ")";
}

void printZshOptions(const CommandFacts& command) {
  for (const OptionFacts& option : command.options) {
    const std::string value =
        option.valueName.empty() ? "" : ":" + option.valueName + ":" + zshAction(option);
    for (const std::string& name : option.names) {
      fmt::print("        '({}){}[{}]{}' \\\n", join(option.names, " "), name,
                 escapeZsh(option.description), value);
    }
  }
}

void printZsh(const CommandFacts& program, const std::vector<CommandFacts>& commands) {
  fmt::print(
      "#compdef tutti\n# zsh completion for tutti, made by `tutti completion zsh`\n"
      "_tutti() {{\n"
      "  local -a commands=(\n");
  for (const CommandFacts& command : commands) {
    fmt::print("    '{}:{}'\n", command.name, escapeZsh(command.description));
  }
  fmt::print("  )\n  if ((CURRENT == 2)); then\n    _describe command commands\n");
  fmt::print("    _arguments \\\n");
  printZshOptions(program);
  fmt::print("        && return\n    return\n  fi\n  local command=$words[2]\n");
  fmt::print("  shift words\n  ((CURRENT -= 1))\n  case $command in\n");
  for (const CommandFacts& command : commands) {
    fmt::print("    {})\n      _arguments \\\n", command.name);
    printZshOptions(command);
    const std::string action =
        command.positionals.empty() ? "_files" : zshAction(command.positionals.front());
    fmt::print("        '*:argument:{}' ;;\n", action);
  }
  fmt::print("  esac\n}}\n_tutti \"$@\"\n");
}

// fish keeps a backslash and a quote in single quotes by a backslash.
std::string escapeFish(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\'' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void printFishOptions(const CommandFacts& command, const std::string& condition) {
  for (const OptionFacts& option : command.options) {
    std::string line = fmt::format("complete -c tutti -n '{}'", condition);
    for (const std::string& name : option.names) {
      line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (!option.valueName.empty()) line += " -r";
    if (!option.choices.empty()) line += " -f -a '" + join(option.choices, " ") + "'";
    fmt::print("{} -d '{}'\n", line, escapeFish(option.description));
  }
}

void printFish(const CommandFacts& program, const std::vector<CommandFacts>& commands) {
  fmt::print("# fish completion for tutti, made by `tutti completion fish`\n");
  for (const CommandFacts& command : commands) {
    fmt::print("complete -c tutti -f -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
               escapeFish(command.description));
  }
  printFishOptions(program, "__fish_use_subcommand");
  for (const CommandFacts& command : commands) {
    const std::string condition = "__fish_seen_subcommand_from " + command.name;
    printFishOptions(command, condition);
    for (const OptionFacts& each : command.positionals) {
      if (each.choices.empty()) continue;
      fmt::print("complete -c tutti -f -n '{}' -a '{}'\n", condition, join(each.choices, " "));
    }
  }
}

constexpr const char* kFooter =
    "Packages install these. By hand:\n"
    "  tutti completion bash > ~/.local/share/bash-completion/completions/tutti\n"
    "  tutti completion zsh > \"${fpath[1]}/_tutti\"\n"
    "  tutti completion fish > ~/.config/fish/completions/tutti.fish\n"
    "\n"
    "Example: source <(tutti completion bash)";

}  // namespace

void addCompletion(CLI::App& app, int& exitCode) {
  using Writer = void (*)(const CommandFacts&, const std::vector<CommandFacts>&);
  static const std::map<std::string, Writer> kWriters = {
      {"bash", &printBash}, {"zsh", &printZsh}, {"fish", &printFish}};
  auto shell = std::make_shared<std::string>();  // shared by the parser and the callback
  CLI::App* command = app.add_subcommand("completion", "Print a shell's completions of tutti");
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember(&kWriters));
  command->footer(kFooter);
  command->callback([&app, shell, &exitCode] {
    kWriters.at (*shell)(describeCommand(app), describeSubcommands(app));
    exitCode = kExitOk;
  });
}

}  // namespace tutti::tools
