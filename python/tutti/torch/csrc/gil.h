// Python's lock, where C++ runs that may or may not hold it.
#pragma once

#include <Python.h>

namespace tutti::pytorch {

// Lets other Python threads run for the scope, if this one holds the lock.
class WithoutGil {
 public:
  WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace tutti::pytorch
