package rockstrata.peer;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicAttributes;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.StoreCheckpoint;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** A DefaultMessageStore over a directory, configured as a broker's properties file would do it. */
final class PeerStore {
    private static final long DISPATCH_LIMIT_MS = 600_000;

    final DefaultMessageStore store;
    final boolean wasClean;

    private PeerStore(DefaultMessageStore store, boolean wasClean) {
        this.store = store;
        this.wasClean = wasClean;
    }

    /** Built but not loaded. */
    static PeerStore make(Args args) throws IOException {
        MessageStoreConfig config = storeConfig(args);
        Path root = Path.of(config.getStorePathRootDir());
        Files.createDirectories(root);
        boolean wasClean = !Files.exists(root.resolve("abort"));
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("peer", false),
            (topic, queueId, offset, tags, time, bitmap, properties) -> { }, brokerConfig(args), topics(args, root));
        return new PeerStore(store, wasClean);
    }

    /** Loaded and started; says so with one line of facts. */
    static PeerStore open(Args args) throws Exception {
        PeerStore peer = make(args);
        boolean loaded = peer.store.load();
        Map<String, Object> facts = peer.facts(loaded);
        if (!loaded) {
            Out.line(facts);
            throw new IllegalStateException("load returned false for " + args.text("dir"));
        }
        peer.store.start();
        facts.put("started", true);
        Out.line(facts);
        return peer;
    }

    static MessageStoreConfig storeConfig(Args args) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(Path.of(args.text("dir")).toAbsolutePath().toString());
        // Port 0: several peers may run at once on one machine.
        config.setHaListenPort(0);
        MixAll.properties2Object(properties(args), config);
        return config;
    }

    static BrokerConfig brokerConfig(Args args) {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerName("peer");
        MixAll.properties2Object(properties(args), config);
        return config;
    }

    static Properties properties(Args args) {
        Properties properties = new Properties();
        for (String setting : args.all("conf")) {
            int equals = setting.indexOf('=');
            properties.setProperty(setting.substring(0, equals), setting.substring(equals + 1));
        }
        return properties;
    }

    /** Topics of config/topics.json, as a broker would load them, and those named by --batch-topic. */
    private static ConcurrentMap<String, TopicConfig> topics(Args args, Path root) throws IOException {
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        Path file = root.resolve("config").resolve("topics.json");
        if (Files.exists(file)) {
            TopicConfigSerializeWrapper saved = RemotingSerializable.fromJson(
                Files.readString(file, StandardCharsets.UTF_8), TopicConfigSerializeWrapper.class);
            topics.putAll(saved.getTopicConfigTable());
        }
        for (String name : args.all("batch-topic")) {
            TopicConfig topic = new TopicConfig(name, 8, 8);
            topic.getAttributes().put(TopicAttributes.QUEUE_TYPE_ATTRIBUTE.getName(), CQType.BatchCQ.toString());
            topics.put(name, topic);
        }
        return topics;
    }

    private Map<String, Object> facts(boolean loaded) {
        Map<String, Object> facts = Out.map("facts", true, "loaded", loaded, "was_clean", wasClean);
        facts.put("commit_log_min", store.getMinPhyOffset());
        facts.put("commit_log_max", store.getMaxPhyOffset());
        facts.put("confirm_offset", store.getConfirmOffset());
        StoreCheckpoint checkpoint = store.getStoreCheckpoint();
        if (checkpoint != null) {
            facts.put("checkpoint", Out.map(
                "physic_msg_timestamp", checkpoint.getPhysicMsgTimestamp(),
                "logics_msg_timestamp", checkpoint.getLogicsMsgTimestamp(),
                "index_msg_timestamp", checkpoint.getIndexMsgTimestamp(),
                "master_flushed_offset", checkpoint.getMasterFlushedOffset(),
                "confirm_phy_offset", checkpoint.getConfirmPhyOffset(),
                "logics_physical_offset", Versions.logicsPhysicalOffset(checkpoint)));
        }
        return facts;
    }

    /** Waits until every stored byte has been dispatched; false when that does not happen. */
    boolean awaitDispatch() throws InterruptedException {
        return awaitDispatch(store);
    }

    static boolean awaitDispatch(DefaultMessageStore store) throws InterruptedException {
        long deadline = System.currentTimeMillis() + DISPATCH_LIMIT_MS;
        while (store.getReputFromOffset() < store.getMaxPhyOffset()) {
            if (System.currentTimeMillis() > deadline) {
                return false;
            }
            Thread.sleep(1);
        }
        return true;
    }

    /** Leaves as --exit says: clean (default), halt after dispatch, or halt-now. */
    void leave(Args args) throws InterruptedException {
        String exit = args.text("exit", "clean");
        if (!List.of("clean", "halt", "halt-now").contains(exit)) {
            throw new IllegalArgumentException("--exit must be clean, halt or halt-now, not " + exit);
        }
        boolean dispatched = exit.equals("halt-now") ? store.dispatchBehindBytes() == 0 : awaitDispatch();
        Map<String, Object> done = Out.map("done", true, "exit", exit, "dispatched", dispatched,
            "commit_log_min", store.getMinPhyOffset(), "commit_log_max", store.getMaxPhyOffset(),
            "dispatch_position", store.getReputFromOffset(),
            "writeable", store.getRunningFlags().isWriteable());
        if (exit.equals("clean")) {
            store.shutdown();
            done.put("abort_left", Files.exists(Path.of(args.text("dir"), "abort")));
        }
        Out.line(done);
    }
}
