package rockstrata.peer;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;

/** {@code bench NAME --dir D …}: one line of figures, measured inside the process. */
final class Bench implements Command {
    @Override
    public void run(Args args) throws Exception {
        String name = args.words().isEmpty() ? "" : args.words().get(0);
        Map<String, Object> figures = Out.map("bench", name);
        figures.putAll(measure(name, args));
        figures.put("peak_rss_kb", peakRss());
        Out.line(figures);
    }

    private static Map<String, Object> measure(String name, Args args) throws Exception {
        switch (name) {
            case "put":
                return BenchPut.single(args);
            case "put-batch":
                return BenchPut.batch(args);
            case "sync":
                return BenchSync.run(args);
            case "rebuild":
                return BenchStart.run(args, true);
            case "start":
                return BenchStart.run(args, false);
            case "read":
                return BenchRead.run(args);
            case "index":
                return BenchIndex.run(args);
            default:
                throw new IllegalArgumentException(
                    "bench what? put, put-batch, sync, rebuild, start, read or index, not " + name);
        }
    }

    static double seconds(long nanos) {
        return nanos / 1e9;
    }

    static double perSecond(long count, long nanos) {
        return count / seconds(nanos);
    }

    /** In microseconds; sorts its argument. */
    static Map<String, Object> latencies(long[] nanos) {
        Arrays.sort(nanos);
        return Out.map("p50_us", percentile(nanos, 0.50), "p99_us", percentile(nanos, 0.99),
            "p999_us", percentile(nanos, 0.999), "max_us", percentile(nanos, 1));
    }

    private static double percentile(long[] sorted, double part) {
        return sorted[(int) Math.min(sorted.length - 1, Math.floor(part * sorted.length))] / 1e3;
    }

    private static long peakRss() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("\\D", ""));
            }
        }
        return -1;
    }
}
