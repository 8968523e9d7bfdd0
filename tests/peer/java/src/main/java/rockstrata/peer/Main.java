package rockstrata.peer;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

/** Entry point: one word names the command, the rest are its {@code --name value} arguments. */
public final class Main {
    private static final Map<String, Command> COMMANDS = new TreeMap<>(Map.of(
        "bench", new Bench(),
        "broker", new Broker(),
        "write", new Write(),
        "stream", new Stream(),
        "dump", new Dump(),
        "query", new Query()));

    private Main() {
    }

    public static void main(String[] words) {
        Out.takeStdout();
        int code = 1;
        try {
            if (words.length == 0 || !COMMANDS.containsKey(words[0])) {
                throw new IllegalArgumentException("first word must be one of " + COMMANDS.keySet());
            }
            COMMANDS.get(words[0]).run(Args.parse(Arrays.asList(words).subList(1, words.length)));
            code = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        // RocketMQ leaves threads behind that are not daemons; halt does not wait for them.
        System.err.flush();
        Runtime.getRuntime().halt(code);
    }
}
