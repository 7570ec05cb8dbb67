/* Run a model from Java (22 or newer): a shared library, called through the foreign function API.
 *
 *     dlc compile mnist_cnn.onnx -o mnist.so && java --enable-native-access=ALL-UNNAMED RunMnist.java
 */
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

/** The MNIST model and the memory of one call; use one instance per thread. */
public class RunMnist {
    /** The layout of `dlc_call` in mnist.h. */
    private static final StructLayout CALL = MemoryLayout.structLayout(
        ADDRESS.withName("inputs"), ADDRESS.withName("outputs"), ADDRESS.withName("sizes"), ADDRESS.withName("memory"),
        JAVA_LONG.withName("bytes"), ADDRESS.withName("shapes"), ADDRESS.withName("pool"), ADDRESS.withName("parallel"),
        ADDRESS.withName("user"), JAVA_LONG.withName("required_bytes"), JAVA_LONG.withName("failed_operation"), ADDRESS.withName("program"),
        ADDRESS.withName("selectors"), JAVA_LONG.withName("selector_count"), ADDRESS.withName("unmatched_input"));

    private final MethodHandle model;
    private final MemorySegment call, image, digits;

    RunMnist(Path library, Arena arena) throws Throwable {
        MemorySegment symbol = SymbolLookup.libraryLookup(library, arena).find("dlc_model_mnist").orElseThrow();
        model = Linker.nativeLinker().downcallHandle(symbol, FunctionDescriptor.of(JAVA_LONG, ADDRESS));
        call = arena.allocate(CALL);
        image = arena.allocate(JAVA_FLOAT, 784);
        digits = arena.allocate(JAVA_FLOAT, 10);
        // A call without memory only reports how much memory a call needs.
        run();
        long requiredBytes = call.get(JAVA_LONG, at("required_bytes"));
        set("inputs", pointerTo(image, arena));
        set("outputs", pointerTo(digits, arena));
        set("memory", arena.allocate(requiredBytes, 64));
        call.set(JAVA_LONG, at("bytes"), requiredBytes);
    }

    /** Returns the probabilities of the ten digits for an image of 28×28 pixels. */
    float[] run(float[] pixels) throws Throwable {
        MemorySegment.copy(pixels, 0, image, JAVA_FLOAT, 0, pixels.length);
        run();
        return digits.toArray(JAVA_FLOAT);
    }

    private void run() throws Throwable {
        long code = (long) model.invokeExact(call);
        if (code != 0) throw new IllegalStateException("dlc_model_mnist: " + code);
    }

    private void set(String field, MemorySegment value) {
        call.set(ADDRESS, at(field), value);
    }

    private static long at(String field) {
        return CALL.byteOffset(MemoryLayout.PathElement.groupElement(field));
    }

    private static MemorySegment pointerTo(MemorySegment array, Arena arena) {
        MemorySegment pointer = arena.allocate(ADDRESS);
        pointer.set(ADDRESS, 0, array);
        return pointer;
    }

    public static void main(String[] arguments) throws Throwable {
        try (Arena arena = Arena.ofConfined()) {
            RunMnist mnist = new RunMnist(Path.of("mnist.so").toAbsolutePath(), arena);
            for (float probability : mnist.run(new float[784])) System.out.printf("%.4f ", probability);
            System.out.println();
        }
    }
}
