// A signal as a wish for a bundle: the only one that the library takes, only where the program has
// left it alone, and only when asked to.
#pragma once

#include <string>

namespace tutti::comm {

// "SIGUSR1", or by its number.
std::string nameOfSignal(int signal);

// From now on it adds 1 to the eventfd, on whichever thread it comes. A forked child that gets
// it ends, as it would without this library. Calls that the signal interrupts go on, where the
// system restarts them. Empty, or who has the signal: then nothing was changed. Once a process.
std::string takeSignal(int signal, int eventFd);

// As if it had never been taken; nothing if the program has taken it since.
void giveSignalBack(int signal);

// The calling thread lets the signal in: so that it finds one where all the program's threads
// block it.
void letSignalIn(int signal);

}  // namespace tutti::comm
