package rockstrata.peer;

import com.google.gson.JsonObject;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.ConsumerSendMsgBackRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** A consumer gives a message back, through the broker's own request handler. */
final class SendBack {
    private SendBack() {
    }

    static Map<String, Object> send(BrokerController controller, JsonObject step) throws Exception {
        String group = Plan.text(step, "group");
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        controller.getSubscriptionGroupManager().updateSubscriptionGroupConfig(config);
        ConsumerSendMsgBackRequestHeader header = new ConsumerSendMsgBackRequestHeader();
        header.setGroup(group);
        header.setOffset(Plan.longNumber(step, "physical_offset", 0));
        header.setDelayLevel(Plan.number(step, "delay_level", 0));
        header.setOriginTopic(Plan.text(step, "topic", null));
        header.setOriginMsgId(Plan.text(step, "msg_id", null));
        header.setMaxReconsumeTimes(Plan.number(step, "max_reconsume_times", 16));
        RemotingCommand answer = controller.getSendMessageProcessor().processRequest(Contexts.make(),
            Contexts.request(RequestCode.CONSUMER_SEND_MSG_BACK, header));
        return Out.map("code", answer == null ? null : answer.getCode(),
            "remark", answer == null ? null : answer.getRemark());
    }
}
