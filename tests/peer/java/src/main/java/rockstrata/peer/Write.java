package rockstrata.peer;

import com.google.gson.JsonObject;
import java.util.List;

/** {@code write --dir D --plan FILE [--exit clean|halt|halt-now]}: puts every line of the plan. */
final class Write implements Command {
    @Override
    public void run(Args args) throws Exception {
        List<JsonObject> plan = Plan.read(args.text("plan"));
        PeerStore peer = PeerStore.open(args);
        for (int i = 0; i < plan.size(); i++) {
            JsonObject step = plan.get(i);
            if (Plan.has(step, "sleep_ms")) {
                Thread.sleep(Plan.longNumber(step, "sleep_ms", 0));
                continue;
            }
            Out.line(Puts.answer(i, Puts.put(peer.store, step)));
        }
        peer.leave(args);
    }
}
