package rockstrata.peer;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** A plan file: JSON lines, blank lines ignored. */
final class Plan {
    private Plan() {
    }

    static List<JsonObject> read(String path) throws IOException {
        List<JsonObject> steps = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(path))) {
            if (!line.isBlank()) {
                steps.add(JsonParser.parseString(line).getAsJsonObject());
            }
        }
        return steps;
    }

    static boolean has(JsonObject step, String name) {
        return step.has(name) && !step.get(name).isJsonNull();
    }

    static String text(JsonObject step, String name, String otherwise) {
        return has(step, name) ? step.get(name).getAsString() : otherwise;
    }

    static String text(JsonObject step, String name) {
        if (!has(step, name)) {
            throw new IllegalArgumentException("missing \"" + name + "\" in " + step);
        }
        return step.get(name).getAsString();
    }

    static int number(JsonObject step, String name, int otherwise) {
        return has(step, name) ? step.get(name).getAsInt() : otherwise;
    }

    static long longNumber(JsonObject step, String name, long otherwise) {
        return has(step, name) ? step.get(name).getAsLong() : otherwise;
    }
}
