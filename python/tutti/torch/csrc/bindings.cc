// What Python sees: _C.open(path), _C.Warden, _C.create(...).
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <csignal>

#include "process_group.h"

namespace py = pybind11;

namespace tutti::pytorch {
namespace {

void letPythonHandleSignals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace
}  // namespace tutti::pytorch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace tutti::pytorch;  // NOLINT(google-build-using-namespace): pybind's macro opens a
                                   // function
  using Released = py::call_guard<py::gil_scoped_release>;

  py::class_<Library, std::shared_ptr<Library>>(module, "Library");
  module.def("open", [](const std::string& path) {
    return std::const_pointer_cast<Library>(Library::open(path));
  });

  py::class_<Warden, std::shared_ptr<Warden>>(module, "Warden")
      .def(py::init([] { return std::make_shared<Warden>(&letPythonHandleSignals); }))
      .def("interrupt", &Warden::interrupt, Released())
      .def("leave", &Warden::leave, Released());

  py::class_<ProcessGroup, Base, c10::intrusive_ptr<ProcessGroup>>(module, "ProcessGroupTutti")
#if TUTTI_TORCH_HAS_SPLIT
      .def_property_readonly("options", &ProcessGroup::getBackendOptions)
#endif
      .def("close", &ProcessGroup::close, Released());

  module.def(
      "create",
      [](std::shared_ptr<Library> library, std::shared_ptr<Warden> warden,
         c10::intrusive_ptr<c10d::Store> store, int rank, int size,
         std::chrono::milliseconds timeout) {
        return ProcessGroup::create(
            std::move(library), std::move(warden),
            {.store = std::move(store), .rank = rank, .size = size, .timeout = timeout});
      },
      Released());
}
