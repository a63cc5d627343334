package setpoint;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Store.CloseableResource;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Kubernetes control planes for JUnit 5: one process for all tests, a control plane for each test.
 *
 * <pre>{@code
 * @ExtendWith(SetpointExtension.class)
 * class ReconcilerTest {
 *   @Test
 *   void reconciles(SetpointExtension.Plane plane) {
 *     var config = Config.fromKubeconfig(plane.kubeconfig());
 * }</pre>
 *
 * The program is the one that the variable SETPOINT names, or setpoint in PATH. The package is this
 * one file: it can be copied.
 */
public final class SetpointExtension implements ParameterResolver {
  private static final ExtensionContext.Namespace NAMESPACE =
      ExtensionContext.Namespace.create(SetpointExtension.class);

  @Override
  public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
    var type = parameter.getParameter().getType();
    return type == Plane.class || type == Server.class;
  }

  @Override
  public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
    // Ends with the last test.
    var server = context.getRoot().getStore(NAMESPACE)
        .getOrComputeIfAbsent(Server.class, key -> Server.start(), Server.class);
    if (parameter.getParameter().getType() == Server.class) {
      return server;
    }
    // Ends with the test. A parameter of a constructor or of `@BeforeAll` ends with its class.
    return context.getStore(NAMESPACE).getOrComputeIfAbsent(Plane.class, key -> server.plane(), Plane.class);
  }

  /** How an API server is reached by its administrator. */
  public abstract static class Access {
    private final Map<String, String> access;
    private final SSLContext tls;

    private Access(Map<String, String> access) {
      this.access = access;
      this.tls = trusting(access.get("certificateAuthority"));
    }

    public String url() {
      return access.get("url");
    }

    /** The text of a kubeconfig. */
    public String kubeconfig() {
      return access.get("kubeconfig");
    }

    public String token() {
      return access.get("token");
    }

    /** The CA of the server's certificate, in PEM. */
    public String certificateAuthority() {
      return access.get("certificateAuthority");
    }

    /** Sends a request as the administrator; returns the text of the answer. The body may be null. */
    public String request(String method, String path, String body) {
      var publisher = body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body);
      var request = HttpRequest.newBuilder(URI.create(url() + path)).method(method, publisher)
          .header("Authorization", "Bearer " + token()).header("Content-Type", "application/json").build();
      // A client for each request: one that keeps connections fails a POST where the server has closed them.
      var client = HttpClient.newBuilder().sslContext(tls).proxy(HttpClient.Builder.NO_PROXY).build();
      try {
        var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 300) {
          throw new IllegalStateException(method + " " + path + ": " + answer.statusCode() + " " + answer.body());
        }
        return answer.body();
      } catch (IOException error) {
        throw new IllegalStateException(method + " " + path, error);
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        throw new IllegalStateException(method + " " + path, error);
      }
    }
  }

  /** A process of setpoint. It is an API server itself, but tests want a plane each. */
  public static final class Server extends Access implements CloseableResource, AutoCloseable {
    private final Process process;

    private Server(Process process, Map<String, String> access) {
      super(access);
      this.process = process;
    }

    /** Starts a process with flags of kube-apiserver. It ends with close, or with this process. */
    public static Server start(String... flags) {
      var named = System.getenv("SETPOINT");
      List<String> command = new ArrayList<>(List.of(named == null ? "setpoint" : named, "envtest", "serve"));
      command.addAll(List.of(flags));
      try {
        var process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        var reader = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        var line = reader.readLine();
        if (line == null) {
          throw new IllegalStateException(command + " ended before it was ready");
        }
        return new Server(process, parse(line));
      } catch (IOException error) {
        throw new IllegalStateException("start " + command, error);
      }
    }

    /** Makes a control plane. */
    public Plane plane() {
      return new Plane(this, parse(request("POST", "/setpoint/planes", null)));
    }

    /** Makes a control plane whose time can be advanced. The caller closes it. */
    public Plane virtualPlane() {
      return new Plane(this, parse(request("POST", "/setpoint/planes", "{\"virtualTime\": true}")));
    }

    /** Ends the process and all planes. */
    @Override
    public void close() throws InterruptedException {
      process.destroy();
      if (!process.waitFor(20, TimeUnit.SECONDS)) {
        process.destroyForcibly();
      }
    }
  }

  /** A control plane with its own objects, port and administrator. */
  public static final class Plane extends Access implements CloseableResource, AutoCloseable {
    private final Server server;
    private final String path;

    private Plane(Server server, Map<String, String> access) {
      super(access);
      this.server = server;
      this.path = "/setpoint/planes/" + access.get("id");
    }

    /** Keeps the state under a name of letters, digits and dashes. */
    public void snapshot(String name) {
      server.request("POST", path + "/snapshot", "{\"name\": \"" + name + "\"}");
    }

    /** Brings the state of a snapshot back. Watches see the differences as changes. */
    public void reset(String name) {
      server.request("POST", path + "/reset", "{\"name\": \"" + name + "\"}");
    }

    /** Lets time pass, at most a week; returns the time that is reached. Only with virtual time. */
    public Instant advance(Duration by) {
      var answer = server.request("POST", path + "/advance", "{\"seconds\": " + by.toMillis() / 1000.0 + "}");
      return Instant.parse(fields(answer).get("time"));
    }

    /** Ends the control plane. */
    @Override
    public void close() {
      server.request("DELETE", path, null);
    }
  }

  private static SSLContext trusting(String certificates) {
    try {
      var store = KeyStore.getInstance(KeyStore.getDefaultType());
      store.load(null, null);
      var pem = new ByteArrayInputStream(certificates.getBytes(StandardCharsets.US_ASCII));
      for (var certificate : CertificateFactory.getInstance("X.509").generateCertificates(pem)) {
        store.setCertificateEntry("ca-" + store.size(), certificate);
      }
      var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(store);
      var context = SSLContext.getInstance("TLS");
      context.init(null, trust.getTrustManagers(), null);
      return context;
    } catch (GeneralSecurityException | IOException error) {
      throw new IllegalStateException("read the CA of the server", error);
    }
  }

  /** A field of a flat JSON object: a text or a whole number. */
  private static final Pattern FIELD = Pattern.compile("\"(\\w++)\"\\s*+:\\s*+(?:\"((?:[^\"\\\\]++|\\\\.)*+)\"|(\\d++))");
  private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u([0-9a-fA-F]{4})|(.))");

  private static Map<String, String> fields(String json) {
    var fields = new HashMap<String, String>();
    var found = FIELD.matcher(json);
    while (found.find()) {
      fields.put(found.group(1), found.group(2) == null ? found.group(3) : unescaped(found.group(2)));
    }
    return fields;
  }

  private static Map<String, String> parse(String json) {
    var fields = fields(json);
    if (!fields.keySet().containsAll(List.of("url", "kubeconfig", "token", "certificateAuthority"))) {
      throw new IllegalStateException("not an answer of setpoint: " + json);
    }
    return fields;
  }

  private static String unescaped(String text) {
    return ESCAPE.matcher(text).replaceAll(escape -> {
      if (escape.group(1) != null) {
        return Matcher.quoteReplacement(String.valueOf((char) Integer.parseInt(escape.group(1), 16)));
      }
      var c = escape.group(2);
      return Matcher.quoteReplacement(switch (c) {
        case "n" -> "\n";
        case "t" -> "\t";
        case "r" -> "\r";
        case "b" -> "\b";
        case "f" -> "\f";
        default -> c;
      });
    });
  }
}
