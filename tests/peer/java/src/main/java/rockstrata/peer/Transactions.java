package rockstrata.peer;

import com.google.gson.JsonObject;
import io.netty.channel.ChannelHandlerContext;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.processor.EndTransactionProcessor;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageServiceImpl;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.EndTransactionRequestHeader;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.PutMessageResult;

/** Half messages and their ends, through the broker's own service and request handler. */
final class Transactions {
    private final BrokerController controller;
    private final EndTransactionProcessor processor;
    private final ChannelHandlerContext context = Contexts.make();
    private final Map<Integer, Half> halves = new HashMap<>();

    private static final class Half {
        String group;
        String topic;
        AppendMessageResult where;
    }

    Transactions(BrokerController controller) {
        this.controller = controller;
        this.processor = new EndTransactionProcessor(controller);
    }

    PutMessageResult prepare(int number, JsonObject step) throws Exception {
        MessageExtBrokerInner message = Letters.single(step);
        PutMessageResult result = controller.getTransactionalMessageService().prepareMessage(message);
        Half half = new Half();
        half.group = message.getProperty(MessageConst.PROPERTY_PRODUCER_GROUP);
        half.topic = Plan.text(step, "topic");
        half.where = result.getAppendMessageResult();
        halves.put(number, half);
        return result;
    }

    Map<String, Object> end(int reference, boolean commit, JsonObject step) throws Exception {
        Half half = halves.get(reference);
        if (half == null) {
            throw new IllegalArgumentException("ref must be the number of a half step: " + step);
        }
        EndTransactionRequestHeader header = new EndTransactionRequestHeader();
        header.setTopic(half.topic);
        header.setProducerGroup(Plan.text(step, "group", half.group));
        header.setTranStateTableOffset(half.where.getLogicsOffset());
        header.setCommitLogOffset(half.where.getWroteOffset());
        header.setCommitOrRollback(
            commit ? MessageSysFlag.TRANSACTION_COMMIT_TYPE : MessageSysFlag.TRANSACTION_ROLLBACK_TYPE);
        header.setFromTransactionCheck(Plan.has(step, "from_check") && step.get("from_check").getAsBoolean());
        header.setMsgId(half.where.getMsgId());
        long before = controller.getMessageStore().getMaxPhyOffset();
        RemotingCommand answer =
            processor.processRequest(context, Contexts.request(RequestCode.END_TRANSACTION, header));
        return Out.map("code", answer.getCode(), "remark", answer.getRemark(), "log_before", before,
            "log_after", controller.getMessageStore().getMaxPhyOffset());
    }

    /** Writes the op records that wait for their batch. */
    Map<String, Object> flushOps() {
        TransactionalMessageServiceImpl service =
            (TransactionalMessageServiceImpl) controller.getTransactionalMessageService();
        int interval = controller.getBrokerConfig().getTransactionOpBatchInterval();
        long before = controller.getMessageStore().getMaxPhyOffset();
        controller.getBrokerConfig().setTransactionOpBatchInterval(0);
        try {
            service.batchSendOpMessage();
        } finally {
            controller.getBrokerConfig().setTransactionOpBatchInterval(interval);
        }
        return Out.map("log_before", before, "log_after", controller.getMessageStore().getMaxPhyOffset());
    }

    /** One round of the transaction check, now. */
    Map<String, Object> check(JsonObject step) {
        long before = controller.getMessageStore().getMaxPhyOffset();
        controller.getTransactionalMessageService().check(
            Plan.longNumber(step, "timeout_ms", controller.getBrokerConfig().getTransactionTimeOut()),
            Plan.number(step, "max", controller.getBrokerConfig().getTransactionCheckMax()),
            controller.getTransactionalMessageCheckListener());
        return Out.map("log_before", before, "log_after", controller.getMessageStore().getMaxPhyOffset());
    }
}
