// tutti manual: the manual pages, as roff, made from the command's own help.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <string>

#include "base/version.h"
#include "tools/command.h"
#include "tools/command_tree.h"

namespace tutti::tools {
namespace {

// A hyphen that is meant to be typed, a backslash that is one, and no line that roff takes for a
// request.
std::string escape(const std::string& text) {
  std::string escaped;
  bool isLineStart = true;
  for (const char c : text) {
    if (isLineStart && (c == '.' || c == '\'')) escaped += "\\&";
    isLineStart = c == '\n';
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

void printOptions(const std::vector<OptionFacts>& options) {
  for (const OptionFacts& option : options) {
    std::string names;
    for (const std::string& name : option.names) {
      names += (names.empty() ? "" : ", ") + ("\\fB" + escape(name) + "\\fR");
    }
    if (!option.valueName.empty() && option.names.front().starts_with('-')) {
      names += " \\fI" + escape(option.valueName) + "\\fR";
    }
    fmt::print(".TP\n{}\n{}\n", names, escape(option.description));
  }
}

// Text whose lines are laid out already.
void printVerbatim(const std::string& text) {
  if (!text.empty()) fmt::print(".nf\n{}\n.fi\n", escape(text));
}

void printHead(const CommandFacts& command) {
  const std::string name = command.name.empty() ? "tutti" : "tutti-" + command.name;
  std::string capitals = name;
  std::transform(capitals.begin(), capitals.end(), capitals.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  fmt::print(".TH {} 1 \"\" \"tutti {}\" \"User Commands\"\n", escape(capitals), kVersion);
  fmt::print(".SH NAME\n{} \\- {}\n", escape(name), escape(command.description));
  fmt::print(".SH SYNOPSIS\n\\fBtutti{}\\fR", command.name.empty() ? "" : " " + command.name);
}

void printPage(const CommandFacts& command) {
  printHead(command);
  fmt::print(" [\\fIoptions\\fR]");
  for (const OptionFacts& each : command.positionals) {
    const std::string name = "\\fI" + escape(each.names.front()) + "\\fR";
    fmt::print(" {}", each.isRequired ? name : "[" + name + "]");
  }
  fmt::print("\n");
  if (!command.positionals.empty()) {
    fmt::print(".SH ARGUMENTS\n");
    printOptions(command.positionals);
  }
  fmt::print(".SH OPTIONS\n");
  printOptions(command.options);
  fmt::print(".SH NOTES\n");
  printVerbatim(command.footer);
  fmt::print(".SH SEE ALSO\n.BR tutti (1)\n");
}

void printProgramPage(const CommandFacts& program, const std::vector<CommandFacts>& commands) {
  printHead(program);
  fmt::print(" \\fIcommand\\fR [\\fIoptions\\fR]\n.SH COMMANDS\n");
  for (const CommandFacts& command : commands) {
    fmt::print(".TP\n.BR tutti\\-{} (1)\n{}\n", command.name, escape(command.description));
  }
  fmt::print(".SH OPTIONS\n");
  printOptions(program.options);
  fmt::print(".SH EXIT STATUS\n");
  printVerbatim(
      "0  all is well\n1  a finding, or wrong data\n2  the command line makes no sense\n"
      "3  the machine, a file or a library stands in the way\n4  a time limit");
  fmt::print(
      ".SH ENVIRONMENT\nSettings are environment variables that begin with NCCL_ or TUTTI_, or "
      "lines of\n.IR /etc/nccl.conf .\n\\fBtutti settings\\fR lists them.\n.SH NOTES\n");
  printVerbatim(program.footer);
}

}  // namespace

void addManual(CLI::App& app, int& exitCode) {
  auto wanted = std::make_shared<std::string>();  // shared by the parser and the callback
  CLI::App* command = app.add_subcommand("manual", "Print a manual page, for man");
  command->add_option("command", *wanted, "Whose page; without: the page of tutti itself");
  command->footer("Packages install these pages.\n\nExample: tutti manual perf | man -l -");
  command->callback([&app, wanted, &exitCode] {
    const std::vector<CommandFacts> commands = describeSubcommands(app);
    if (wanted->empty()) {
      printProgramPage(describeCommand(app), commands);
      exitCode = kExitOk;
      return;
    }
    for (const CommandFacts& each : commands) {
      if (each.name != *wanted) continue;
      printPage(each);
      exitCode = kExitOk;
      return;
    }
    throw CLI::ValidationError("command", "there is no subcommand '" + *wanted + "'");
  });
}

}  // namespace tutti::tools
