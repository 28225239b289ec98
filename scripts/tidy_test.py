#!/usr/bin/env python3
"""Shows that each rule of tidy.py fires on what it forbids and stays silent on what it allows."""

import contextlib
import io
import pathlib
import tempfile
import tomllib
import unittest

import tidy

RULES = tomllib.loads((pathlib.Path(__file__).resolve().parent / "layers.toml").read_text())


def findings(path, text):
    rules = tidy.Rules(RULES)
    rules.check(path, text)
    return [(found.line, found.rule) for found in rules.findings]


class TidyCase(unittest.TestCase):
    def allows(self, path, text):
        self.assertEqual(findings(path, text), [])

    def refuses(self, path, text, rule, line=1):
        self.assertEqual(findings(path, text), [(line, rule)])


class Layering(TidyCase):
    def test_a_folder_includes_itself_and_those_before_it(self):
        self.allows("src/transport/a.cc", '#include "transport/a.h"\n#include "wire/link.h"\n#include <net/if.h>\n')

    def test_refuses_a_folder_that_comes_later(self):
        self.refuses("src/base/a.cc", '#include <vector>\n#include "wire/link.h"\n', "layer", 2)

    def test_refuses_it_in_tests_too(self):
        self.refuses("src/wire/a_test.cc", '#include "comm/comm.h"\n', "layer")

    def test_refuses_a_folder_that_has_no_place(self):
        self.refuses("src/misc/a.cc", "#include <vector>\n", "layer")

    def test_ignores_an_include_in_a_comment(self):
        self.allows("src/base/a.cc", '// #include "wire/link.h"\n/*\n#include "comm/comm.h"\n*/\n')

    def test_only_the_registry_names_an_inner_folder(self):
        include = '#include "transport/shm/shm.h"\n'
        self.allows("src/transport/registry.cc", include)
        self.allows("src/transport/shm/shm.cc", include)
        self.refuses("src/transport/transport.cc", include, "inner")
        self.refuses("src/comm/comm.cc", include, "inner")
        self.refuses("src/transport/local/local.cc", include, "inner")
        self.refuses("tools/perf.cc", include, "inner")
        self.allows("bench/micro/shm_bench.cc", include)

    def test_vendor_headers_stay_in_their_folders(self):
        for header in ("cuda_runtime.h", "cuda.h", "nvml.h", "infiniband/verbs.h"):
            self.allows("src/device/cuda/a.cc", f"#include <{header}>\n")
            self.refuses("src/device/a.cc", f"#include <{header}>\n", "hardware")

    def test_pure_folders_see_no_clock_socket_thread_or_setting(self):
        for header in ("<chrono>", "<thread>", "<sys/socket.h>", '"base/settings.h"', '"base/rng.h"'):
            self.refuses("src/schedule/a.cc", f"#include {header}\n", "pure")
            self.refuses("src/plan/inner/a.h", f"#pragma once\n#include {header}\n", "pure", 2)
            self.allows("src/schedule/a_test.cc", f"#include {header}\n")
            self.allows("src/comm/a.cc", f"#include {header}\n")


class Seams(TidyCase):
    def test_getenv_only_in_settings(self):
        for call in ("std::getenv(name)", "secure_getenv(name)", "environ[0]"):
            text = f"void f() {{ use({call}); }}\n"
            self.allows("src/base/settings.cc", text)
            self.refuses("src/base/log.cc", text, "getenv")

    def test_time_only_in_clock(self):
        calls = ("std::chrono::steady_clock::now()", "clock_gettime(CLOCK_MONOTONIC, &at)", "time(nullptr)",
                 "std::this_thread::sleep_for(1ms)", "usleep(10)", "::sleep(1)", "nanosleep(&span, nullptr)")
        for call in calls:
            text = f"void f() {{\n  {call};\n}}\n"
            self.allows("src/base/clock.cc", text)
            self.refuses("src/comm/comm.cc", text, "time", 2)
            self.refuses("src/comm/comm_test.cc", text, "time", 2)

    def test_members_and_words_that_look_like_time_are_allowed(self):
        self.allows("src/comm/a.cc", "void sleep(Waits& waits) { waiter.sleep(1); Waiter::sleep(1); x.time(0); sleeper.fetch_add(1); "
                                     "runtime(0); }\n")

    def test_randomness_only_in_rng(self):
        for call in ("rand()", "std::random_device device", "std::mt19937 engine(1)", "getrandom(p, 1, 0)",
                     "randombytes_buf(p, 1)"):
            text = f"void f() {{ {call}; }}\n"
            self.allows("src/base/rng.cc", text)
            self.refuses("src/bootstrap/a.cc", text, "randomness")

    def test_strings_and_comments_call_nothing(self):
        self.allows("src/comm/a.cc", '// getenv(x), rand()\nvoid f() { log("sleep_for(1) getenv()"); }\n')
        self.allows("src/comm/a.cc", 'const char* const kText = R"(goto time(nullptr))";\n')


class Globals(TidyCase):
    def test_refuses_variables_of_a_namespace(self):
        for text in ("int counter = 0;", "std::atomic<int> counter{0};", "static std::map<int, int> counter;",
                     "const char* counter = nullptr;", "int counter[4];", "namespace {\nstd::mutex counter;\n}",
                     "thread_local int counter;", "inline int counter = f(1, 2);", "void (*counter)(int) = nullptr;"):
            found = findings("src/comm/a.cc", text + "\n")
            self.assertEqual([rule for _, rule in found], ["global"], text)

    def test_refuses_statics_of_functions_and_classes(self):
        self.refuses("src/comm/a.cc", "int next() {\n  static int last = 0;\n  return ++last;\n}\n", "global", 2)
        self.refuses("src/comm/a.cc", "void f() {\n  if (x) {\n    thread_local Cache cache;\n  }\n}\n", "global", 3)
        self.refuses("src/comm/a.cc", "Foo& foo() {\n  static Foo foo(1);\n  return foo;\n}\n", "global", 2)
        self.refuses("src/comm/a.h", "#pragma once\nclass A {\n  static inline int count_ = 0;\n};\n", "global", 3)

    def test_allows_constants_types_functions_and_members(self):
        self.allows("src/comm/a.h", """#pragma once
namespace tutti {
using Id = int;
enum class Kind : uint8_t { kA, kB = 2 };
class Later;
struct Pair { int first = 0; std::vector<int> second{}; };
constexpr int kOne = 1;
inline constexpr std::array<int, 2> kTwo = {1, 2};
const char* const kName = "x";
static const std::string kText = make(1, 2);
extern const int kThere;
Result<int> parse(std::string_view text, int radix = 10);
template <typename T>
T twice(T value) { return value + value; }
class A {
 public:
  explicit A(int x) : x_(x), list_{1, 2} {}
  A& operator=(const A&) = default;
  bool operator==(const A& other) const { return x_ == other.x_; }
  static Result<A> open(Options options = {.a = 1});
  static constexpr int kMax = 3;
 private:
  int x_ = 0;
  std::vector<int> list_;
};
[[nodiscard]] std::unique_ptr<A> makeA();
void run(void (*call)(void*), void* argument);
}  // namespace tutti
extern "C" {
int ncclThing(int* out);
}
""")

    def test_allows_locals(self):
        self.allows("src/comm/a.cc", "int f() {\n  int a = 1;\n  auto g = [&] { int b = a; return b; };\n"
                                     "  static constexpr int kTable[] = {1, 2};\n  static const int kLast = g();\n"
                                     "  for (int i = 0; i < 3; ++i) { a += kTable[i]; }\n  return a + kLast;\n}\n")

    def test_allows_those_that_layers_toml_names(self):
        self.allows("src/base/clock.cc", "Clock& steadyClock() {\n  static SteadyClock clock;\n  return clock;\n}\n")

    def test_leaves_tests_alone(self):
        self.allows("src/comm/a_test.cc", "int counter = 0;\n")


class Sizes(TidyCase):
    @staticmethod
    def function(lines, name="f"):
        return f"void {name}() {{\n" + "  g();\n" * (lines - 2) + "}\n"

    def test_functions_have_a_limit(self):
        self.allows("src/comm/a.cc", self.function(70))
        self.refuses("src/comm/a.cc", "\n" + self.function(71), "size", 2)
        self.refuses("tools/a.cc", self.function(71), "size")

    def test_finds_long_members_constructors_and_templates(self):
        body = " {\n" + "  g();\n" * 80 + "}\n"
        heads = (
            "Foo::Foo(int a) : a_(a), b_{1}, c_{}",
            "Foo::Foo(int a) : caps_{.name = 1, .list = {f(2)}}, b_(g(a))",
            "Foo::Foo() noexcept : b_{{1}, {}}",
            "template <typename T>\nT Foo<T>::bar(T a) const noexcept",
            "auto f(int a) -> std::vector<int>",
            "static Foo make(int a = f(1), Options b = g(), Bytes c = {})",
            "template <int N = 3>\nvoid f(std::array<int, N> a = {})",
            "Foo& Foo::operator=(Foo&& other)",
            "TEST(Suite, Name)",
        )
        for head in heads:
            found = findings("src/comm/a.cc", "namespace tutti {\n" + head + body + "}\n")
            self.assertEqual(found, [(2, "size")], head)

    def test_a_long_class_or_table_is_no_function(self):
        self.allows("src/comm/a.cc", "class A {\n" + "  void f();\n" * 90 + "};\nstruct B\n    : A {\n"
                    + "  int x;\n" * 90 + "};\nconstexpr int kTable[] = {\n" + "    1,\n" * 90 + "};\n")

    def test_many_parameters_want_a_struct(self):
        self.allows("src/comm/a.cc", "void f(int a, std::map<int, int> b, int c, int d, int (*e)(int, int)) {}\n")
        self.refuses("src/comm/a.cc", "void f(int a, int b, int c, int d, int e, int g) {}\n", "size")
        self.allows("src/comm/a_test.cc", "void f(int a, int b, int c, int d, int e, int g) {}\n")  # mirrors a C call
        self.allows("src/api/a.cc", "ncclResult_t pncclAllReduce(int a, int b, int c, int d, int e, int f) {}\n")

    def test_files_have_a_limit(self):
        self.allows("src/comm/a.cc", "\n" * 1000)
        self.refuses("src/comm/a.cc", "\n" * 1001, "size")
        rules = tidy.Rules(RULES)
        rules.check("src/comm/a.cc", "\n" * 501)
        self.assertEqual(len(rules.notes), 1)


class Bans(TidyCase):
    def test_goto(self):
        self.refuses("src/comm/a.cc", "void f() {\n  goto end;\n}\n", "ban", 2)

    def test_using_namespace(self):
        self.refuses("tools/a.cc", "using namespace std;\n", "ban")
        self.allows("tools/a.cc", "using std::string;\nnamespace fs = std::filesystem;\n")

    def test_platforms_only_where_named(self):
        text = "#if defined(__x86_64__)\n#endif\n"
        self.refuses("src/comm/a.cc", text, "platform")
        self.allows("src/device/registry.cc", text)
        self.allows("src/comm/a.cc", "#ifdef NDEBUG\n#endif\n#if __has_include(<x.h>)\n#endif\n")

    def test_headers_that_cost(self):
        self.refuses("src/comm/a.cc", "#include <iostream>\n", "ban")
        self.refuses("src/comm/a.cc", "#include <fmt/format.h>\n", "ban")
        self.allows("tools/a.cc", "#include <iostream>\n")

    def test_headers_begin_with_pragma_once(self):
        self.refuses("src/comm/a.h", "struct A {};\n", "ban")
        self.refuses("src/comm/a.h", "// #pragma once\n", "ban")
        self.allows("include/nccl.h", "#ifndef NCCL_H_\n#define NCCL_H_\n#endif\n")

    def test_todo_has_a_form(self):
        self.refuses("src/comm/a.cc", "// TODO: later\n", "todo")
        self.refuses("src/comm/a.cc", "int f();  // FIXME\n", "todo")
        self.allows("src/comm/a.cc", "// TODO(perf): fold two slots at once, 8 % on a ring of 8\n")

    def test_commented_out_code(self):
        self.refuses("src/comm/a.cc", "// int a = f();\n// return a;\n", "comment", 2)
        self.allows("src/comm/a.cc", "// One thing;\n// another; and\n// f() does it.\n// Example: f(1);\n")


class Names(unittest.TestCase):
    def refused(self, *files):
        rules = tidy.Rules(RULES)
        for path, text in files:
            rules.check(path, f"namespace tutti::tools {{\n{text}\n}}\n")
        return [(found.path, found.line) for found in rules.findings if found.rule == "name"]

    def test_a_type_is_defined_in_one_file(self):
        self.assertEqual(self.refused(("tools/a.cc", "struct Row {};"), ("tools/b.cc", "class Row final : public Base {};")), [("tools/b.cc", 2)])
        self.assertEqual(self.refused(("src/base/a.cc", "enum class Kind { kA };"), ("tools/b.cc", "enum Kind : int { kA };")), [("tools/b.cc", 2)])

    def test_what_no_other_file_can_name_may_be_called_alike(self):
        row = "struct Row {};"
        self.assertEqual(self.refused(("tools/a.cc", row), ("tools/b.cc", f"namespace {{\n{row}\n}}")), [])
        self.assertEqual(self.refused(("tools/a.cc", row), ("tools/b.cc", f"namespace other {{\n{row}\n}}")), [])
        self.assertEqual(self.refused(("tools/a.cc", row), ("tools/b.cc", "struct Table {\n  struct Row {};\n};")), [])
        self.assertEqual(self.refused(("tools/a.cc", row), ("tools/b.cc", f"void f() {{\n  {row}\n}}")), [])
        self.assertEqual(self.refused(("tools/a.cc", row), ("tools/b.cc", "struct Row;")), [])
        self.assertEqual(self.refused(("tools/a.cc", row), ("tools/b.cc", "struct Row::Impl {};"), ("tools/c.cc", "template <>\nstruct Row<int> {};")), [])
        self.assertEqual(self.refused(("tools/a.cc", row), ("tools/row_test.cc", row)), [])


class Command(unittest.TestCase):
    def run_on(self, text):
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root) / "src" / "base"
            folder.mkdir(parents=True)
            (folder / "a.cc").write_text(text)
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                code = tidy.main(["--root", root])
            return code, output.getvalue()

    def test_says_file_line_and_reason(self):
        code, output = self.run_on("\nint counter;\n")
        self.assertEqual(code, 1)
        self.assertIn("src/base/a.cc:2: [global] `counter`", output)

    def test_is_content_with_a_clean_tree(self):
        code, output = self.run_on("int f() { return 1; }\n")
        self.assertEqual(code, 0)
        self.assertIn("1 files, 0 findings", output)


if __name__ == "__main__":
    unittest.main()
