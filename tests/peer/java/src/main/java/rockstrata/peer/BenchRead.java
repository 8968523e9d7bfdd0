package rockstrata.peer;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;

/** {@code bench read --topic T --batch 32 --passes 5}: every queue by getMessage, from page cache. */
final class BenchRead {
    private BenchRead() {
    }

    static Map<String, Object> run(Args args) throws Exception {
        String topic = args.text("topic", BenchLetters.TOPIC);
        int batch = args.number("batch", 32);
        int passes = args.number("passes", 5);
        PeerStore peer = PeerStore.open(args);
        peer.awaitDispatch();
        Map<Integer, ConsumeQueueInterface> queues = peer.store.getConsumeQueueTable().get(topic);
        if (queues == null) {
            throw new IllegalArgumentException("no topic " + topic);
        }
        // The first pass of each kind warms the compiler and the page cache, and is not reported.
        pass(peer, topic, queues, batch, null);
        List<Double> mapped = new ArrayList<>();
        long count = 0;
        for (int i = 0; i < passes; i++) {
            long start = System.nanoTime();
            count = pass(peer, topic, queues, batch, null);
            mapped.add(Bench.perSecond(count, System.nanoTime() - start));
        }
        byte[] room = new byte[8 << 20];
        pass(peer, topic, queues, batch, room);
        List<Double> copied = new ArrayList<>();
        for (int i = 0; i < passes; i++) {
            long start = System.nanoTime();
            pass(peer, topic, queues, batch, room);
            copied.add(Bench.perSecond(count, System.nanoTime() - start));
        }
        Map<String, Object> figures = Out.map("count", count, "batch", batch,
            "messages_per_s", median(mapped), "messages_per_s_passes", mapped,
            "copied_messages_per_s", median(copied), "copied_messages_per_s_passes", copied);
        peer.leave(args);
        return figures;
    }

    /** Reads all queues once; with room given, copies every record there, as sending it would. */
    private static long pass(PeerStore peer, String topic, Map<Integer, ConsumeQueueInterface> queues, int batch,
        byte[] room) throws Exception {
        long count = 0;
        for (int queueId : queues.keySet()) {
            long offset = Math.max(0, peer.store.getMinOffsetInQueue(topic, queueId));
            long max = peer.store.getMaxOffsetInQueue(topic, queueId);
            while (offset < max) {
                GetMessageResult result = peer.store.getMessage("bench", topic, queueId, offset, batch, null);
                if (result.getStatus() == GetMessageStatus.FOUND) {
                    count += result.getMessageCount();
                    copy(result, room);
                }
                offset = result.getNextBeginOffset();
                result.release();
            }
        }
        return count;
    }

    private static void copy(GetMessageResult result, byte[] room) {
        if (room == null) {
            return;
        }
        int at = 0;
        for (SelectMappedBufferResult record : result.getMessageMapedList()) {
            ByteBuffer bytes = record.getByteBuffer();
            int size = bytes.remaining();
            bytes.get(room, at, size);
            at += size;
        }
    }

    private static double median(List<Double> values) {
        return values.stream().sorted().skip(values.size() / 2).findFirst().orElseThrow();
    }
}
