// serve HOST PORT FILE: answers GET with the file, and POST with the SHA-256 of what was posted; on a pool of threads.
// fetch FILE URL...: asks each of them several times at once, and compares.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;

public class Http {
    static byte[] digest(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes)).getBytes();
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    static void answer(HttpExchange exchange, byte[] whole) throws IOException {
        byte[] posted = exchange.getRequestBody().readAllBytes();
        byte[] answer = exchange.getRequestMethod().equals("GET") ? whole : digest(posted);
        exchange.sendResponseHeaders(200, answer.length);
        exchange.getResponseBody().write(answer);
        exchange.close();
    }

    static void serve(String host, int port, byte[] whole) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(host, port), 64);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> answer(exchange, whole));
        server.start();
    }

    static void fetch(byte[] whole, List<String> urls) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        List<CompletableFuture<HttpResponse<byte[]>>> answers = new ArrayList<>();
        for (String url : urls) {
            for (int n = 0; n < 12; n++) {
                HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url));
                request = n % 2 == 0 ? request.GET() : request.POST(BodyPublishers.ofByteArray(whole));
                answers.add(client.sendAsync(request.build(), BodyHandlers.ofByteArray()));
            }
        }
        for (int n = 0; n < answers.size(); n++) {
            byte[] answer = answers.get(n).get().body();
            if (!Arrays.equals(answer, n % 2 == 0 ? whole : digest(whole))) {
                throw new IllegalStateException("request " + n + ": other bytes");
            }
        }
        System.out.println("same " + answers.size());
        // Its threads would stay for a while.
        System.exit(0);
    }

    public static void main(String[] arguments) throws Exception {
        List<String> rest = Arrays.asList(arguments).subList(1, arguments.length);
        if (arguments[0].equals("serve")) {
            serve(rest.get(0), Integer.parseInt(rest.get(1)), Files.readAllBytes(Path.of(rest.get(2))));
        } else {
            fetch(Files.readAllBytes(Path.of(rest.get(0))), rest.subList(1, rest.size()));
        }
    }
}
