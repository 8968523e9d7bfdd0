package rockstrata.peer;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;

/** {@code broker --dir D --plan FILE [--exit halt-now]}: a whole broker, without a name server. */
final class Broker implements Command {
    private static final long WAIT_LIMIT_MS = 60_000;

    @Override
    public void run(Args args) throws Exception {
        List<JsonObject> plan = Plan.read(args.text("plan"));
        BrokerController controller = start(args);
        Transactions transactions = new Transactions(controller);
        for (int i = 0; i < plan.size(); i++) {
            JsonObject step = plan.get(i);
            Map<String, Object> answer = Out.map("step", i, "op", Plan.text(step, "op"));
            answer.putAll(act(controller, transactions, i, step));
            Out.line(answer);
        }
        leave(controller, args);
    }

    private static BrokerController start(Args args) throws Exception {
        BrokerConfig brokerConfig = PeerStore.brokerConfig(args);
        brokerConfig.setNamesrvAddr(null);
        MessageStoreConfig storeConfig = PeerStore.storeConfig(args);
        NettyServerConfig serverConfig = new NettyServerConfig();
        // Any free port, reachable from this machine only.
        serverConfig.setListenPort(0);
        serverConfig.setBindAddress("127.0.0.1");
        MixAll.properties2Object(PeerStore.properties(args), serverConfig);
        boolean wasClean = !Files.exists(Path.of(storeConfig.getStorePathRootDir(), "abort"));
        BrokerController controller =
            new BrokerController(brokerConfig, serverConfig, new NettyClientConfig(), storeConfig);
        boolean loaded = controller.initialize();
        Out.line("facts", true, "loaded", loaded, "was_clean", wasClean);
        if (!loaded) {
            throw new IllegalStateException("the broker did not initialize over " + args.text("dir"));
        }
        controller.start();
        return controller;
    }

    private static Map<String, Object> act(BrokerController controller, Transactions transactions, int number,
        JsonObject step) throws Exception {
        String topic = Plan.text(step, "topic", null);
        String group = Plan.text(step, "group", null);
        int queueId = Plan.number(step, "queue_id", 0);
        switch (Plan.text(step, "op")) {
            case "put":
                return Puts.answer(number, Puts.put(controller.getMessageStore(), step));
            case "half":
                return Puts.answer(number, transactions.prepare(number, step));
            case "commit":
                return transactions.end(Plan.number(step, "ref", -1), true, step);
            case "rollback":
                return transactions.end(Plan.number(step, "ref", -1), false, step);
            case "flush_op":
                return transactions.flushOps();
            case "check":
                return transactions.check(step);
            case "send_back":
                return SendBack.send(controller, step);
            case "commit_offset":
                controller.getConsumerOffsetManager().commitOffset("peer", group, topic, queueId,
                    Plan.longNumber(step, "offset", 0));
                return Out.map("ok", true);
            case "query_offset":
                return Out.map("offset", controller.getConsumerOffsetManager().queryOffset(group, topic, queueId));
            case "create_topic":
                controller.getTopicConfigManager().updateTopicConfig(topicConfig(step));
                return Out.map("ok", true);
            case "topics":
                return Out.map("topics",
                    new TreeMap<>(controller.getTopicConfigManager().getTopicConfigTable()).keySet());
            case "delay_offsets":
                return Out.map("offsets", new TreeMap<>(controller.getScheduleMessageService().getOffsetTable()));
            case "wait_max":
                return waitMax(controller, topic, queueId, step);
            case "sleep_ms":
                Thread.sleep(Plan.longNumber(step, "n", 0));
                return Out.map("ok", true);
            case "ask":
                return Query.ask((DefaultMessageStore) controller.getMessageStore(), step.getAsJsonObject("question"));
            default:
                throw new IllegalArgumentException("unknown op in " + step);
        }
    }

    private static TopicConfig topicConfig(JsonObject step) {
        int queues = Plan.number(step, "queues", 4);
        TopicConfig config = new TopicConfig(Plan.text(step, "topic"), Plan.number(step, "read_queues", queues),
            Plan.number(step, "write_queues", queues), Plan.number(step, "perm", 6));
        if (Plan.has(step, "attributes")) {
            Map<String, String> attributes = new HashMap<>();
            for (Map.Entry<String, JsonElement> entry : step.getAsJsonObject("attributes").entrySet()) {
                // The manager wants to be told that an attribute is added.
                attributes.put("+" + entry.getKey(), entry.getValue().getAsString());
            }
            config.setAttributes(attributes);
        }
        return config;
    }

    /** Waits until a queue has the given number of entries, e.g. until a delayed message has arrived. */
    private static Map<String, Object> waitMax(BrokerController controller, String topic, int queueId,
        JsonObject step) throws Exception {
        long wanted = Plan.longNumber(step, "max", 1);
        long deadline = System.currentTimeMillis() + Plan.longNumber(step, "timeout_ms", WAIT_LIMIT_MS);
        long max = controller.getMessageStore().getMaxOffsetInQueue(topic, queueId);
        while (max < wanted && System.currentTimeMillis() < deadline) {
            Thread.sleep(10);
            max = controller.getMessageStore().getMaxOffsetInQueue(topic, queueId);
        }
        return Out.map("max", max, "reached", max >= wanted);
    }

    private static void leave(BrokerController controller, Args args) throws Exception {
        DefaultMessageStore store = (DefaultMessageStore) controller.getMessageStore();
        PeerStore.awaitDispatch(store);
        List<Object> queues = new ArrayList<>();
        for (Map<Integer, ConsumeQueueInterface> topic : new TreeMap<>(store.getConsumeQueueTable()).values()) {
            for (ConsumeQueueInterface queue : new TreeMap<>(topic).values()) {
                queues.add(Out.map("topic", queue.getTopic(), "queue_id", queue.getQueueId(),
                    "min", queue.getMinOffsetInQueue(), "max", queue.getMaxOffsetInQueue()));
            }
        }
        String exit = args.text("exit", "clean");
        if (exit.equals("clean")) {
            controller.getTopicConfigManager().persist();
            controller.getSubscriptionGroupManager().persist();
            controller.shutdown();
        }
        Out.line("done", true, "exit", exit, "queues", queues, "commit_log_max", store.getMaxPhyOffset(),
            "abort_left", Files.exists(Path.of(args.text("dir"), "abort")), "config_files", configFiles(args));
    }

    private static List<String> configFiles(Args args) throws IOException {
        Path config = Path.of(args.text("dir"), "config");
        if (!Files.exists(config)) {
            return List.of();
        }
        try (java.util.stream.Stream<Path> files = Files.list(config)) {
            return files.map(path -> path.getFileName().toString()).sorted().toList();
        }
    }
}
