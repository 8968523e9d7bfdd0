package rockstrata.peer;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.StoreCheckpoint;
import org.apache.rocketmq.store.index.IndexService;
import org.apache.rocketmq.store.index.QueryOffsetResult;

/** What 5.3.3 and 5.5.0 do not have in common, by reflection. */
final class Versions {
    private Versions() {
    }

    /** The sixth long of the checkpoint; null where the version does not know it. */
    static Long logicsPhysicalOffset(StoreCheckpoint checkpoint) {
        try {
            return (Long) StoreCheckpoint.class.getMethod("getLogicsPhysicalOffset").invoke(checkpoint);
        } catch (ReflectiveOperationException absent) {
            return null;
        }
    }

    static IndexService indexService(DefaultMessageStore store) throws ReflectiveOperationException {
        Field field = DefaultMessageStore.class.getDeclaredField("indexService");
        field.setAccessible(true);
        return (IndexService) field.get(store);
    }

    /** Offsets of a key; type "T" asks for a tag and exists only in 5.5.0. */
    static QueryOffsetResult queryOffset(DefaultMessageStore store, String topic, String key, int max, long begin,
        long end, String type) throws ReflectiveOperationException {
        IndexService index = indexService(store);
        if (type == null) {
            return index.queryOffset(topic, key, max, begin, end);
        }
        Method query = IndexService.class.getMethod("queryOffset", String.class, String.class, int.class,
            long.class, long.class, String.class);
        return (QueryOffsetResult) query.invoke(index, topic, key, max, begin, end, type);
    }

    /** Messages of a key; with a type only in 5.5.0. */
    static QueryMessageResult queryMessage(DefaultMessageStore store, String topic, String key, int max, long begin,
        long end, String type) throws ReflectiveOperationException {
        if (type == null) {
            return store.queryMessage(topic, key, max, begin, end);
        }
        Method query = DefaultMessageStore.class.getMethod("queryMessage", String.class, String.class, int.class,
            long.class, long.class, String.class, String.class);
        return (QueryMessageResult) query.invoke(store, topic, key, max, begin, end, type, null);
    }
}
