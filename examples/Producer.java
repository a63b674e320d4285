// A producer in Java 17, through a gateway: each line of standard input becomes one message, once.
//
//     seq 3 | java Producer.java http://127.0.0.1:8080 orders run-17
//
// Arguments: the gateway, a topic, a name of this run. The name and the line's number make the Idempotency-Key. So a run that
// failed is started again with the same name and input: lines that were put before are not put again. A token goes into the
// variable TOKEN.
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

public class Producer {
    static final int TRIES = 8;

    static HttpRequest request(URI uri, String key, String line) {
        var request = HttpRequest.newBuilder(uri)
            .header("Idempotency-Key", "\"" + key + "\"")
            .timeout(Duration.ofSeconds(40))
            .POST(HttpRequest.BodyPublishers.ofString(line));
        var token = System.getenv("TOKEN");
        return (token == null ? request : request.header("Authorization", "Bearer " + token)).build();
    }

    /** Sends until an answer settles the request; the same key makes each repeat the same request. */
    static HttpResponse<String> send(HttpClient client, HttpRequest request) throws Exception {
        for (int attempt = 1; ; attempt++) {
            try {
                var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                if (answer.statusCode() < 500 && answer.statusCode() != 409 && answer.statusCode() != 429) return answer;
                if (attempt == TRIES) return answer;
            } catch (IOException error) {
                if (attempt == TRIES) throw error;
            }
            Thread.sleep(200L << attempt);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var topic = URLEncoder.encode(arguments[1], StandardCharsets.UTF_8).replace("+", "%20");
        var uri = URI.create(arguments[0] + "/topics/" + topic + "/messages");
        var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int number = 0;
        for (String line; (line = lines.readLine()) != null; ) {
            number++;
            var answer = send(client, request(uri, arguments[2] + "-" + number, line));
            if (answer.statusCode() != 201) {
                System.err.println("line " + number + ": " + answer.statusCode() + " " + answer.body());
                System.exit(1);
            }
            var repeated = answer.headers().firstValue("Idempotency-Replayed").isPresent();
            System.out.println(number + (repeated ? " was put before" : " put"));
        }
    }
}
