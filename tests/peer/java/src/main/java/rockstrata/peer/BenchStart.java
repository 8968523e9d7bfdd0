package rockstrata.peer;

import java.util.Map;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;

/** {@code bench start} and {@code bench rebuild}: load and start an existing directory. */
final class BenchStart {
    private BenchStart() {
    }

    static Map<String, Object> run(Args args, boolean untilDispatched) throws Exception {
        PeerStore peer = PeerStore.make(args);
        long begin = System.nanoTime();
        if (!peer.store.load()) {
            throw new IllegalStateException("load returned false for " + args.text("dir"));
        }
        long loaded = System.nanoTime();
        peer.store.start();
        long started = System.nanoTime();
        if (untilDispatched) {
            peer.awaitDispatch();
        }
        long dispatched = System.nanoTime();
        long messages = 0;
        for (Map<Integer, ConsumeQueueInterface> topic : peer.store.getConsumeQueueTable().values()) {
            for (ConsumeQueueInterface queue : topic.values()) {
                messages += queue.getMaxOffsetInQueue() - Math.max(0, queue.getMinOffsetInQueue());
            }
        }
        long bytes = peer.store.getMaxPhyOffset() - Math.max(0, peer.store.getMinPhyOffset());
        Map<String, Object> figures = Out.map("was_clean", peer.wasClean, "messages", messages, "bytes", bytes,
            "load_s", Bench.seconds(loaded - begin), "start_s", Bench.seconds(started - loaded),
            "dispatch_s", Bench.seconds(dispatched - started), "total_s", Bench.seconds(dispatched - begin),
            "messages_per_s", Bench.perSecond(messages, dispatched - begin));
        peer.leave(args);
        return figures;
    }
}
