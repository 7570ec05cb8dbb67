// Minimize an energy with the gradient that dlc compiled, in C++.
//
//     dlc compile energy.py:value_and_gradient --shape x=8 --dtype x=float64 -o energy.so
//     c++ -std=c++17 -O2 -I. minimize_energy.cpp ./energy.so -Wl,-rpath,. -o minimize_energy && ./minimize_energy
#include "energy.h"
#include <array>
#include <cstdio>

int main()
{
    std::array<double, 8> x{}, gradient{};
    double energy = 0;
    for (std::size_t i = 0; i < x.size(); i++) x[i] = 0.1 + 0.05 * double(i);
    alignas(64) static unsigned char memory[DLC_MODEL_ENERGY_BYTES];
    const void *inputs[] = {x.data()};
    void *outputs[] = {&energy, gradient.data()};
    dlc_call call{};
    call.inputs = inputs, call.outputs = outputs, call.memory = memory, call.bytes = sizeof memory;
    for (int step = 0; step < 500; step++) {
        if (auto status = dlc_model_energy(&call)) return std::fprintf(stderr, "status %lld\n", (long long)status), 1;
        for (std::size_t i = 0; i < x.size(); i++) x[i] -= 0.05 * gradient[i];
    }
    std::printf("energy %.6f\n", energy);
}
