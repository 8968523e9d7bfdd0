package rockstrata.peer;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;

/** One thread puts, ASYNC_FLUSH unless configured otherwise; everything is made before the clock starts. */
final class BenchPut {
    private BenchPut() {
    }

    /** {@code bench put --count N --body B --queues Q --warmup W}. */
    static Map<String, Object> single(Args args) throws Exception {
        int count = args.number("count", 500_000);
        int queues = args.number("queues", 8);
        BenchLetters letters = new BenchLetters(args.number("body", 1024));
        PeerStore peer = PeerStore.open(args);
        puts(peer, make(letters, args.number("warmup", 100_000), queues));
        peer.awaitDispatch();
        MessageExtBrokerInner[] messages = make(letters, count, queues);
        System.gc();

        long startOffset = peer.store.getMaxPhyOffset();
        long start = System.nanoTime();
        long[] latencies = puts(peer, messages);
        long called = System.nanoTime() - start;
        peer.awaitDispatch();
        long dispatched = System.nanoTime() - start;

        Map<String, Object> figures = Out.map("count", count,
            "record_bytes", (double) (peer.store.getMaxPhyOffset() - startOffset) / count,
            "calls_per_s", Bench.perSecond(count, called), "dispatched_per_s", Bench.perSecond(count, dispatched),
            "call_s", Bench.seconds(called), "dispatched_s", Bench.seconds(dispatched));
        figures.putAll(Bench.latencies(latencies));
        peer.leave(args);
        return figures;
    }

    private static MessageExtBrokerInner[] make(BenchLetters letters, int count, int queues) {
        MessageExtBrokerInner[] messages = new MessageExtBrokerInner[count];
        for (int i = 0; i < count; i++) {
            messages[i] = letters.single(i, i % queues);
        }
        return messages;
    }

    private static long[] puts(PeerStore peer, MessageExtBrokerInner[] messages) {
        long[] latencies = new long[messages.length];
        for (int i = 0; i < messages.length; i++) {
            long before = System.nanoTime();
            PutMessageResult result = peer.store.putMessage(messages[i]);
            latencies[i] = System.nanoTime() - before;
            require(result);
        }
        return latencies;
    }

    /** {@code bench put-batch --count N --batch 256 --body B --queues Q}: count is messages, not batches. */
    static Map<String, Object> batch(Args args) throws Exception {
        int size = args.number("batch", 256);
        int queues = args.number("queues", 8);
        int batches = args.number("count", 512_000) / size;
        int warmup = args.number("warmup", 100_000) / size;
        BenchLetters letters = new BenchLetters(args.number("body", 1024));
        PeerStore peer = PeerStore.open(args);
        MessageExtBatch[] encoded = new MessageExtBatch[Math.max(warmup, batches)];
        encode(letters, encoded, warmup, size, queues);
        puts(peer, encoded, warmup);
        peer.awaitDispatch();
        long encodeNanos = encode(letters, encoded, batches, size, queues);
        System.gc();

        long start = System.nanoTime();
        long[] latencies = puts(peer, encoded, batches);
        long called = System.nanoTime() - start;
        peer.awaitDispatch();
        long dispatched = System.nanoTime() - start;

        long count = (long) batches * size;
        Map<String, Object> figures = Out.map("count", count, "batch", size,
            "messages_per_s", Bench.perSecond(count, called), "dispatched_per_s", Bench.perSecond(count, dispatched),
            "encoded_per_s", Bench.perSecond(count, encodeNanos), "call_s", Bench.seconds(called),
            "dispatched_s", Bench.seconds(dispatched));
        figures.putAll(Bench.latencies(latencies));
        peer.leave(args);
        return figures;
    }

    /** Encodes as the client would; returns only the time spent in encoding. */
    private static long encode(BenchLetters letters, MessageExtBatch[] into, int batches, int size, int queues) {
        long nanos = 0;
        for (int i = 0; i < batches; i++) {
            List<Message> elements = new ArrayList<>(size);
            for (int j = 0; j < size; j++) {
                elements.add(letters.element(i * size + j));
            }
            long before = System.nanoTime();
            byte[] body = MessageDecoder.encodeMessages(elements);
            nanos += System.nanoTime() - before;
            MessageExtBatch batch = new MessageExtBatch();
            letters.fill(batch, i % queues);
            batch.setBody(body);
            MessageAccessor.setProperties(batch, new HashMap<>());
            into[i] = batch;
        }
        return nanos;
    }

    private static long[] puts(PeerStore peer, MessageExtBatch[] batches, int count) {
        long[] latencies = new long[count];
        for (int i = 0; i < count; i++) {
            long before = System.nanoTime();
            PutMessageResult result = peer.store.putMessages(batches[i]);
            latencies[i] = System.nanoTime() - before;
            require(result);
        }
        return latencies;
    }

    static void require(PutMessageResult result) {
        if (result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException("put answered " + result.getPutMessageStatus());
        }
    }
}
