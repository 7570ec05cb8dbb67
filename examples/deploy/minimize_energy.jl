# Minimize an energy with the gradient that dlc compiled, in Julia.
#
#     dlc compile energy.py:value_and_gradient --shape x=8 --dtype x=float64 -o energy.so
#     julia minimize_energy.jl
#
# Arrays of dlc are row-major: the axes of a Julia array are reversed.

# The struct dlc_call of energy.h.
mutable struct Call
    inputs::Ptr{Ptr{Cvoid}}
    outputs::Ptr{Ptr{Cvoid}}
    sizes::Ptr{Int64}
    memory::Ptr{Cvoid}
    bytes::Int64
    shapes::Ptr{Int64}
    pool::Ptr{Cvoid}
    parallel::Ptr{Cvoid}
    user::Ptr{Cvoid}
    required_bytes::Int64
    failed_operation::Int64
    program::Ptr{Cvoid}
    selectors::Ptr{Cvoid}
    selector_count::Int64
    unmatched_input::Ptr{Cchar}
end

const LIBRARY = joinpath(@__DIR__, "energy.so")

run!(call) = ccall((:dlc_model_energy, LIBRARY), Int64, (Ref{Call},), call)

function minimize(x::Vector{Float64}, steps)
    energy, gradient = Ref(0.0), zero(x)
    inputs = Ptr{Cvoid}[pointer(x)]
    outputs = Ptr{Cvoid}[Base.unsafe_convert(Ptr{Float64}, energy), pointer(gradient)]
    GC.@preserve x energy gradient inputs outputs begin
        call = Call(pointer(inputs), pointer(outputs), C_NULL, C_NULL, 0, C_NULL, C_NULL, C_NULL, C_NULL, 0, 0, C_NULL, C_NULL, 0, C_NULL)
        # Without memory, a call computes how much it needs.
        run!(call) == 0 || error("the model failed")
        # Memory is aligned to 64 bytes.
        memory = zeros(UInt8, call.required_bytes + 64)
        GC.@preserve memory begin
            address = UInt(pointer(memory))
            call.memory = Ptr{Cvoid}(address + mod(-address, 64))
            call.bytes = call.required_bytes
            for _ in 1:steps
                run!(call) == 0 || error("the model failed")
                x .-= 0.05 .* gradient
            end
        end
    end
    return energy[]
end

println("energy ", round(minimize(collect(range(0.1, step = 0.05, length = 8)), 500), digits = 6))
