/* A model as a shared library, called from Java (22 or newer) without anything in between:
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

/** The model, with memory for one call at a time. */
public class RunMnist {
    /** `dlc_call` of mnist.h. */
    private static final StructLayout CALL = MemoryLayout.structLayout(
        ADDRESS.withName("inputs"), ADDRESS.withName("outputs"), ADDRESS.withName("sizes"), ADDRESS.withName("memory"),
        JAVA_LONG.withName("bytes"), ADDRESS.withName("shapes"), ADDRESS.withName("pool"), ADDRESS.withName("parallel"),
        ADDRESS.withName("user"), JAVA_LONG.withName("needed"), JAVA_LONG.withName("failed"), ADDRESS.withName("program"),
        ADDRESS.withName("given"), JAVA_LONG.withName("given_count"), ADDRESS.withName("unfit"));

    private final MethodHandle model;
    private final MemorySegment call, picture, digits;

    RunMnist(Path library, Arena arena) throws Throwable {
        MemorySegment symbol = SymbolLookup.libraryLookup(library, arena).find("dlc_model_mnist").orElseThrow();
        model = Linker.nativeLinker().downcallHandle(symbol, FunctionDescriptor.of(JAVA_LONG, ADDRESS));
        call = arena.allocate(CALL);
        picture = arena.allocate(JAVA_FLOAT, 784);
        digits = arena.allocate(JAVA_FLOAT, 10);
        // Without memory it answers how much a call takes.
        run();
        long needed = call.get(JAVA_LONG, at("needed"));
        set("inputs", pointerTo(picture, arena));
        set("outputs", pointerTo(digits, arena));
        set("memory", arena.allocate(needed, 64));
        call.set(JAVA_LONG, at("bytes"), needed);
    }

    /** The probabilities of the ten digits. */
    float[] run(float[] pixels) throws Throwable {
        MemorySegment.copy(pixels, 0, picture, JAVA_FLOAT, 0, pixels.length);
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
