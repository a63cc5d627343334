// A suite as users of the package have it: a control plane is a parameter of a test.

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import setpoint.SetpointExtension;
import setpoint.SetpointExtension.Plane;
import setpoint.SetpointExtension.Server;

@ExtendWith(SetpointExtension.class)
class SetpointTest {
  static final String MAPS = "/api/v1/namespaces/default/configmaps";
  static final List<String> URLS = new ArrayList<>();
  Plane first;

  static String map(String name) {
    return "{\"metadata\": {\"name\": \"" + name + "\"}, \"data\": {\"k\": \"v\"}}";
  }

  @BeforeEach
  void before(Plane plane) {
    first = plane;
  }

  // The same name in each.
  @RepeatedTest(3)
  void eachTestHasAControlPlane(Plane plane) {
    assertEquals(first, plane);
    plane.request("POST", MAPS, map("a"));
    assertTrue(plane.request("GET", MAPS + "/a", null).contains("\"k\":\"v\""));
    assertTrue(plane.kubeconfig().contains(plane.url()) && plane.kubeconfig().contains("\n"));
    assertTrue(!URLS.contains(plane.url()));
    URLS.add(plane.url());
  }

  @Test
  void aPlaneGoesBackToASnapshot(Plane plane) {
    plane.snapshot("start");
    plane.request("POST", MAPS, map("b"));
    plane.reset("start");
    var error = assertThrows(IllegalStateException.class, () -> plane.request("GET", MAPS + "/b", null));
    assertTrue(error.getMessage().contains("404"), error.getMessage());
  }

  @Test
  void timeIsAdvanced(Server server) {
    try (var plane = server.virtualPlane()) {
      var before = Instant.now();
      assertTrue(Duration.between(before, plane.advance(Duration.ofMinutes(61))).toMinutes() >= 60);
    }
  }

  @Test
  void theServerIsAnApiServerItself(Server server, Plane plane) {
    assertNotEquals(server.url(), plane.url());
    assertTrue(server.request("GET", "/version", null).contains("\"1\""));
  }

  @AfterAll
  static void planesEndWithTheirTests(Server server) {
    // A plane is listed until it has ended, which its deletion does not wait for.
    assertTimeoutPreemptively(Duration.ofSeconds(20), () -> {
      while (server.request("GET", "/setpoint/planes", null).contains("url")) {
        Thread.onSpinWait();
      }
    });
  }
}
