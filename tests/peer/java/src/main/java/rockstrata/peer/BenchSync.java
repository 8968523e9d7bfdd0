package rockstrata.peer;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;

/** {@code bench sync --threads T --seconds S --body B}: SYNC_FLUSH, each thread waits for its own message. */
final class BenchSync {
    private BenchSync() {
    }

    static Map<String, Object> run(Args args) throws Exception {
        args.add("conf", "flushDiskType=SYNC_FLUSH");
        int threads = args.number("threads", 16);
        double seconds = Double.parseDouble(args.text("seconds", "5"));
        BenchLetters letters = new BenchLetters(args.number("body", 1024));
        PeerStore peer = PeerStore.open(args);
        round(peer, letters, threads, 1.0);

        long start = System.nanoTime();
        List<Writer> writers = round(peer, letters, threads, seconds);
        long elapsed = System.nanoTime() - start;

        int count = writers.stream().mapToInt(writer -> writer.count).sum();
        long[] latencies = new long[count];
        int at = 0;
        for (Writer writer : writers) {
            System.arraycopy(writer.latencies, 0, latencies, at, writer.count);
            at += writer.count;
        }
        Map<String, Object> figures = Out.map("threads", threads, "count", count,
            "messages_per_s", Bench.perSecond(count, elapsed));
        figures.putAll(Bench.latencies(latencies));
        peer.leave(args);
        return figures;
    }

    private static List<Writer> round(PeerStore peer, BenchLetters letters, int threads, double seconds)
        throws Exception {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        List<Writer> writers = new ArrayList<>();
        List<Thread> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Writer writer = new Writer(peer, letters, i, deadline);
            Thread thread = new Thread(writer);
            thread.setUncaughtExceptionHandler((dead, thrown) -> failure.set(thrown));
            writers.add(writer);
            running.add(thread);
            thread.start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        if (failure.get() != null) {
            throw new IllegalStateException("a writer failed", failure.get());
        }
        return writers;
    }

    private static final class Writer implements Runnable {
        private final PeerStore peer;
        private final BenchLetters letters;
        private final int queueId;
        private final long deadline;
        private long[] latencies = new long[1 << 16];
        private int count;

        Writer(PeerStore peer, BenchLetters letters, int queueId, long deadline) {
            this.peer = peer;
            this.letters = letters;
            this.queueId = queueId;
            this.deadline = deadline;
        }

        @Override
        public void run() {
            for (long before = System.nanoTime(); before < deadline; before = System.nanoTime()) {
                BenchPut.require(peer.store.putMessage(letters.single(count, queueId)));
                if (count == latencies.length) {
                    latencies = Arrays.copyOf(latencies, 2 * count);
                }
                latencies[count++] = System.nanoTime() - before;
            }
        }
    }
}
