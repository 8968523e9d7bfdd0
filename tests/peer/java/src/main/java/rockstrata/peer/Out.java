package rockstrata.peer;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** Answers: one JSON object per line on stdout, each behind a prefix, flushed at once. */
final class Out {
    static final String PREFIX = "@peer ";
    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    private static final OutputStream STDOUT = new FileOutputStream(FileDescriptor.out);

    private Out() {
    }

    /** Whatever a library prints on System.out goes to stderr from now on. */
    static void takeStdout() {
        System.setOut(System.err);
    }

    /** An ordered map from alternating names and values. */
    static Map<String, Object> map(Object... namesAndValues) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            map.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return map;
    }

    static void line(Object... namesAndValues) {
        line(map(namesAndValues));
    }

    static void line(Map<String, Object> answer) {
        byte[] bytes = (PREFIX + GSON.toJson(answer) + "\n").getBytes(StandardCharsets.UTF_8);
        try {
            synchronized (STDOUT) {
                STDOUT.write(bytes);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
