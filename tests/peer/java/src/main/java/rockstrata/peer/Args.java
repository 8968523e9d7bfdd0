package rockstrata.peer;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** {@code --name value} arguments; a name may repeat, and a name without a value is a flag. */
final class Args {
    private final Map<String, List<String>> values = new LinkedHashMap<>();
    private final List<String> words = new ArrayList<>();

    static Args parse(List<String> raw) {
        Args args = new Args();
        for (int i = 0; i < raw.size(); i++) {
            String word = raw.get(i);
            if (!word.startsWith("--")) {
                args.words.add(word);
                continue;
            }
            boolean hasValue = i + 1 < raw.size() && !raw.get(i + 1).startsWith("--");
            args.add(word.substring(2), hasValue ? raw.get(++i) : "true");
        }
        return args;
    }

    void add(String name, String value) {
        values.computeIfAbsent(name, key -> new ArrayList<>()).add(value);
    }

    /** The bare words, in order. */
    List<String> words() {
        return words;
    }

    List<String> all(String name) {
        return values.getOrDefault(name, List.of());
    }

    String text(String name, String otherwise) {
        List<String> given = all(name);
        return given.isEmpty() ? otherwise : given.get(given.size() - 1);
    }

    String text(String name) {
        String value = text(name, null);
        if (value == null) {
            throw new IllegalArgumentException("missing --" + name);
        }
        return value;
    }

    int number(String name, int otherwise) {
        String value = text(name, null);
        return value == null ? otherwise : Integer.parseInt(value);
    }

    boolean flag(String name) {
        return Boolean.parseBoolean(text(name, "false"));
    }
}
