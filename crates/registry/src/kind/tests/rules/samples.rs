//! Objects as kubectl's generators and common manifests have them: all valid.
use super::{Name, created};
use serde_json::{Value, json};

const TEMPLATE: &str = r#"{"metadata":{"creationTimestamp":null,"labels":{"app":"x"}},"spec":{"containers":[{"image":"nginx","name":"nginx","resources":{}}]}}"#;

fn template() -> Value {
    serde_json::from_str(TEMPLATE).unwrap()
}

#[test]
fn what_kubectl_creates_is_valid() {
    let selector = json!({"matchLabels": {"app": "x"}});
    let job = json!({"template": {"spec": {"containers": [{"image": "busybox", "name": "x", "command": ["date"]}], "restartPolicy": "OnFailure"}}});
    let samples: &[(Name, Value)] = &[
        (
            ("", "v1", "Pod"),
            json!({"metadata": {"labels": {"run": "x"}}, "spec": {"containers": [{"image": "nginx", "name": "x", "resources": {}, "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}]}], "dnsPolicy": "ClusterFirst", "restartPolicy": "Never"}}),
        ),
        (
            ("apps", "v1", "Deployment"),
            json!({"spec": {"replicas": 1, "selector": selector, "strategy": {}, "template": template()}}),
        ),
        (
            ("apps", "v1", "ReplicaSet"),
            json!({"spec": {"selector": selector, "template": template()}}),
        ),
        (
            ("apps", "v1", "DaemonSet"),
            json!({"spec": {"selector": selector, "template": template()}}),
        ),
        (
            ("apps", "v1", "StatefulSet"),
            json!({"spec": {"serviceName": "x", "selector": selector, "template": template(), "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}}),
        ),
        (("batch", "v1", "Job"), json!({"spec": job})),
        (
            ("batch", "v1", "CronJob"),
            json!({"spec": {"schedule": "*/1 * * * *", "jobTemplate": {"metadata": {"name": "x"}, "spec": job}}}),
        ),
        (
            ("", "v1", "Service"),
            json!({"spec": {"ports": [{"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080}], "selector": {"app": "x"}, "type": "ClusterIP"}}),
        ),
        (
            ("", "v1", "Service"),
            json!({"spec": {"clusterIP": "None", "selector": {"app": "x"}, "type": "ClusterIP"}}),
        ),
        (
            ("", "v1", "Service"),
            json!({"spec": {"externalName": "example.com", "type": "ExternalName"}}),
        ),
        (("", "v1", "Service"), json!({"spec": {"ports": [{"port": 80}], "type": "LoadBalancer"}})),
        (
            ("networking.k8s.io", "v1", "Ingress"),
            json!({"spec": {"rules": [{"host": "foo.com", "http": {"paths": [{"path": "/bar", "pathType": "Exact", "backend": {"service": {"name": "svc1", "port": {"number": 8080}}}}]}}], "tls": [{"hosts": ["foo.com"], "secretName": "my-cert"}]}}),
        ),
        (
            ("networking.k8s.io", "v1", "Ingress"),
            json!({"spec": {"defaultBackend": {"service": {"name": "svc", "port": {"name": "http"}}}}}),
        ),
        (
            ("networking.k8s.io", "v1", "NetworkPolicy"),
            json!({"spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "172.17.0.0/16", "except": ["172.17.1.0/24"]}}, {"namespaceSelector": {}}], "ports": [{"port": 6379}, {"port": "http"}]}]}}),
        ),
        (
            ("", "v1", "ResourceQuota"),
            json!({"spec": {"hard": {"cpu": "1", "memory": "1G", "pods": "2", "services": "3", "count/deployments.apps": "2", "requests.nvidia.com/gpu": "4", "gold.storageclass.storage.k8s.io/requests.storage": "1Gi"}, "scopes": []}}),
        ),
        (
            ("", "v1", "ResourceQuota"),
            json!({"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}}),
        ),
        (
            ("", "v1", "LimitRange"),
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}, {"type": "Pod", "max": {"memory": "1Gi"}}]}}),
        ),
        (
            ("policy", "v1", "PodDisruptionBudget"),
            json!({"spec": {"minAvailable": "50%", "selector": selector}}),
        ),
        (
            ("rbac.authorization.k8s.io", "v1", "Role"),
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}),
        ),
        (
            ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
            json!({"rules": [{"nonResourceURLs": ["/logs/*"], "verbs": ["get"]}]}),
        ),
        (
            ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
            json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}, "rules": []}),
        ),
        (
            ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
            json!({"roleRef": {"kind": "ClusterRole", "name": "admin"}, "subjects": [{"kind": "User", "name": "user1"}, {"kind": "ServiceAccount", "name": "sa", "namespace": "default"}]}),
        ),
        (
            ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
            json!({"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}, "subjects": [{"kind": "Group", "name": "system:masters"}]}),
        ),
        (("", "v1", "Secret"), json!({"stringData": {"a": "b"}})),
        (
            ("", "v1", "Secret"),
            json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{\"auths\":{}}"}}),
        ),
        (("", "v1", "ConfigMap"), json!({"data": {"key1": "config1"}})),
        (
            ("scheduling.k8s.io", "v1", "PriorityClass"),
            json!({"value": 1000, "description": "high"}),
        ),
        (
            ("autoscaling", "v2", "HorizontalPodAutoscaler"),
            json!({"spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}, "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}}),
        ),
        (
            ("", "v1", "PersistentVolume"),
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}}),
        ),
        (
            ("", "v1", "PersistentVolume"),
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "ex.io", "volumeHandle": "h"}, "storageClassName": "s"}}),
        ),
        (
            ("", "v1", "PersistentVolumeClaim"),
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        (
            ("storage.k8s.io", "v1", "StorageClass"),
            json!({"provisioner": "ex.io/Disk", "parameters": {"a": "b"}}),
        ),
        (("storage.k8s.io", "v1", "CSIDriver"), json!({"spec": {}})),
        (
            ("storage.k8s.io", "v1", "CSINode"),
            json!({"spec": {"drivers": [{"name": "ex.io", "nodeID": "n", "topologyKeys": ["topology.ex.io/zone"]}]}}),
        ),
        (
            ("storage.k8s.io", "v1", "VolumeAttachment"),
            json!({"spec": {"attacher": "ex.io", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
        ),
        (
            ("storage.k8s.io", "v1", "CSIStorageCapacity"),
            json!({"storageClassName": "s", "capacity": "1Gi"}),
        ),
        (
            ("storage.k8s.io", "v1", "VolumeAttributesClass"),
            json!({"driverName": "ex.io", "parameters": {"iops": "1"}}),
        ),
        (
            ("networking.k8s.io", "v1", "IngressClass"),
            json!({"spec": {"controller": "ex.io/ingress"}}),
        ),
        (
            ("networking.k8s.io", "v1", "IPAddress"),
            json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {"resource": "services", "name": "a", "namespace": "b"}}}),
        ),
        (
            ("networking.k8s.io", "v1", "ServiceCIDR"),
            json!({"spec": {"cidrs": ["10.0.0.0/24", "2001:db8::/112"]}}),
        ),
        (("node.k8s.io", "v1", "RuntimeClass"), json!({"handler": "runc"})),
        (
            ("coordination.k8s.io", "v1", "Lease"),
            json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}),
        ),
        (
            ("discovery.k8s.io", "v1", "EndpointSlice"),
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": true}, "zone": "a"}], "ports": [{"name": "http", "port": 80}, {"name": "", "port": 81}]}),
        ),
        (
            ("", "v1", "Endpoints"),
            json!({"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]}),
        ),
        (
            ("", "v1", "Node"),
            json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        ),
        (("", "v1", "Namespace"), json!({})),
        (("", "v1", "ReplicationController"), json!({"spec": {"template": template()}})),
        (("", "v1", "PodTemplate"), json!({"template": template()})),
        (("apps", "v1", "ControllerRevision"), json!({"data": {"a": 1}, "revision": 1})),
        (
            ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"),
            json!({"spec": {"priorityLevelConfiguration": {"name": "exempt"}, "rules": [{"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}}], "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"]}]}]}}),
        ),
        (
            ("flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration"),
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}}),
        ),
        (
            ("apiregistration.k8s.io", "v1", "APIService"),
            json!({"metadata": {"name": "v1.ex.io"}, "spec": {"group": "ex.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10, "service": {"name": "a", "namespace": "b"}, "insecureSkipTLSVerify": true}}),
        ),
        (
            ("resource.k8s.io", "v1", "ResourceClaim"),
            json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}], "constraints": [{"requests": ["r"], "matchAttribute": "ex.io/numa"}]}}}),
        ),
        (
            ("resource.k8s.io", "v1", "DeviceClass"),
            json!({"spec": {"selectors": [{"cel": {"expression": "device.driver == 'ex.io'"}}]}}),
        ),
        (
            ("resource.k8s.io", "v1", "ResourceSlice"),
            json!({"spec": {"driver": "ex.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d", "attributes": {"a": {"string": "x"}}, "capacity": {"memory": {"value": "1Gi"}}}]}}),
        ),
    ];
    for (name, object) in samples {
        assert_eq!(created(*name, object.clone()), [""; 0], "{name:?} {object}");
    }
}
