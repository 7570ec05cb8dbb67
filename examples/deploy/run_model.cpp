// Run a compiled model in C++: RAII classes around the C interface; errors are exceptions.
//
//     dlc compile model.onnx -o model.dlc && dlc header -o dlc.h
//     c++ -std=c++17 -O2 -pthread -I. run_model.cpp -o run_model && ./run_model model.dlc [SIZE...]
#define DLC_IMPLEMENTATION
#include "dlc.h"
#include <algorithm>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

class Model {
public:
    explicit Model(const std::string &path)
    {
        char message[256] = "";
        dlc_options options{};
        options.message = message, options.message_bytes = sizeof message;
        dlc_model *opened;
        if (dlc_open(path.c_str(), &options, &opened)) throw std::runtime_error(message);
        model.reset(opened);
    }

    // The memory of one call; use one context per thread.
    class Context {
    public:
        Context(const Model &owner, const std::vector<int64_t> &sizes)
        {
            dlc_context *created;
            if (int code = dlc_context_create(owner.model.get(), nullptr, &created)) throw std::runtime_error(dlc_error(code));
            context.reset(created);
            resize(sizes);
        }

        void resize(const std::vector<int64_t> &sizes) { require(dlc_resize(context.get(), sizes.data())); }

        std::vector<char> array(int outputs, int32_t i) const
        {
            dlc_tensor_info info;
            if (int code = dlc_context_info(context.get(), outputs, i, &info)) throw std::out_of_range(dlc_error(code));
            return std::vector<char>(static_cast<size_t>(info.bytes));
        }

        void run(const std::vector<const void *> &inputs, std::vector<void *> &outputs)
        {
            require(dlc_run(context.get(), inputs.data(), outputs.data()));
        }

    private:
        void require(int code) const
        {
            if (code) throw std::runtime_error(dlc_message(context.get()));
        }
        std::unique_ptr<dlc_context, decltype(&dlc_context_destroy)> context{nullptr, dlc_context_destroy};
    };

    int32_t count(int outputs) const { return dlc_count(model.get(), outputs); }

private:
    std::unique_ptr<dlc_model, decltype(&dlc_close)> model{nullptr, dlc_close};
};

int main(int argc, char **argv)
try {
    if (argc < 2) throw std::runtime_error("usage: run_model model.dlc [size...]");
    std::vector<int64_t> sizes;
    for (int k = 2; k < argc; k++) sizes.push_back(std::stoll(argv[k]));
    Model model(argv[1]);
    sizes.resize(std::max<size_t>(sizes.size(), 16), 1);
    Model::Context context(model, sizes);
    std::vector<std::vector<char>> arrays;
    std::vector<const void *> inputs;
    std::vector<void *> outputs;
    for (int32_t k = 0; k < model.count(0); k++) inputs.push_back(arrays.emplace_back(context.array(0, k)).data());
    for (int32_t k = 0; k < model.count(1); k++) outputs.push_back(arrays.emplace_back(context.array(1, k)).data());
    context.run(inputs, outputs);
    std::cout << "first output begins with " << *static_cast<float *>(outputs.at(0)) << " ...\n";
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
