package rockstrata.peer;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.store.index.IndexFile;

/** {@code bench index --keys N --queries Q}: one index file of 5,000,000 slots, filled and asked. */
final class BenchIndex {
    private static final int SLOTS = 5_000_000;
    private static final int CHUNK = 500_000;
    private static final int MAX_HITS = 64;
    private static final long RECORD_BYTES = 1209;

    private BenchIndex() {
    }

    static Map<String, Object> run(Args args) throws Exception {
        int keys = args.number("keys", 20_000_000);
        int queries = args.number("queries", 500_000);
        Path directory = Path.of(args.text("dir"));
        Files.createDirectories(directory);
        long now = System.currentTimeMillis();

        IndexFile warm = new IndexFile(directory.resolve("20000101000000000").toString(), SLOTS, 4 * CHUNK + 1, 0, 0);
        fill(warm, 4 * CHUNK, now);
        ask(warm, queries, 4 * CHUNK, now);
        warm.destroy(1000);

        IndexFile index = new IndexFile(directory.resolve("20000101000000001").toString(), SLOTS, keys + 1, 0, 0);
        long filled = fill(index, keys, now);
        long begin = System.nanoTime();
        index.flush();
        long flushed = System.nanoTime() - begin;
        long asked = ask(index, queries, keys, now);
        index.destroy(1000);
        return Out.map("keys", keys, "slots", SLOTS, "puts_per_s", Bench.perSecond(keys, filled),
            "put_s", Bench.seconds(filled), "flush_s", Bench.seconds(flushed),
            "queries_per_s", Bench.perSecond(queries, asked), "queries", queries);
    }

    /** Scattered over the slots: keys that count upwards would fall into neighbouring ones. */
    private static String key(int number) {
        long mixed = (number + 1) * 0x9E3779B97F4A7C15L;
        mixed = (mixed ^ (mixed >>> 31)) * 0xBF58476D1CE4E5B9L;
        return "Bench#" + Long.toHexString(mixed ^ (mixed >>> 29));
    }

    /** The nanoseconds of putKey alone: the keys of each chunk are made while the clock stands still. */
    private static long fill(IndexFile index, int keys, long now) {
        long nanos = 0;
        String[] chunk = new String[CHUNK];
        for (int base = 0; base < keys; base += CHUNK) {
            int size = Math.min(CHUNK, keys - base);
            for (int i = 0; i < size; i++) {
                chunk[i] = key(base + i);
            }
            long before = System.nanoTime();
            for (int i = 0; i < size; i++) {
                long number = (long) base + i;
                if (!index.putKey(chunk[i], number * RECORD_BYTES, now + number / 200)) {
                    throw new IllegalStateException("the index is full at " + number);
                }
            }
            nanos += System.nanoTime() - before;
        }
        return nanos;
    }

    private static long ask(IndexFile index, int queries, int keys, long now) {
        Random random = new Random(11);
        int[] numbers = random.ints(queries, 0, keys).toArray();
        String[] asked = new String[queries];
        for (int i = 0; i < queries; i++) {
            asked[i] = key(numbers[i]);
        }
        long missed = 0;
        long before = System.nanoTime();
        for (int i = 0; i < queries; i++) {
            List<Long> offsets = new ArrayList<>(MAX_HITS);
            index.selectPhyOffset(offsets, asked[i], MAX_HITS, 0, Long.MAX_VALUE);
            if (!offsets.contains(numbers[i] * RECORD_BYTES)) {
                missed++;
            }
        }
        long nanos = System.nanoTime() - before;
        if (missed > 0) {
            throw new IllegalStateException(missed + " keys were not found");
        }
        return nanos;
    }
}
