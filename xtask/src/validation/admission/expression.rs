//! Expressions that policies have, right ones and odd ones.

use super::super::random::Random;

/// What an expression may name beside the request.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) has_params: bool,
    /// The parameters are of a kind of which each case has one.
    pub(super) has_shared_params: bool,
    /// Names of variables, whose types are whatever they are.
    pub(super) variables: Vec<String>,
}

/// How deep conditions are nested.
const DEPTH_MAX: usize = 3;

/// Conditions that hold, that do not, and that fail at some of the requests.
const CONDITIONS: &[&str] = &[
    "true",
    "false",
    "object.metadata.name.startsWith('a')",
    "object == null",
    "oldObject == null",
    "object != null && has(object.metadata.labels)",
    "has(object.metadata.labels) && 'app' in object.metadata.labels",
    "'app' in object.metadata.labels",
    "object.metadata.labels['app'] == 'a'",
    "object.metadata.labels.app in ['a', 'b']",
    "object.?metadata.?labels.?app.orValue('none') == 'none'",
    "object.metadata.?annotations['example.com/note'].hasValue()",
    "object.metadata.labels.all(k, k.matches('^[a-z.]+$'))",
    "object.metadata.labels.exists(k, v, v == 'b')",
    "object.data.n == '1'",
    "int(object.data.n) > 1",
    "has(object.data) && object.data.all(k, size(object.data[k]) < 4)",
    "object.spec.replicas <= 2",
    "object.spec.replicas > oldObject.spec.replicas",
    "object.spec.containers.all(c, c.image.contains('/'))",
    "object.spec.containers.exists_one(c, c.name == 'main')",
    "object.spec.containers[0].image == 'example.com/a:1'",
    "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits))",
    "quantity(object.spec.containers[0].resources.requests.cpu).isLessThan(quantity('1'))",
    "object.spec.?template.spec.containers.orValue([]).size() == 1",
    "object.spec.ports.map(p, p.port).sum() < 200",
    "object.spec.ports.map(p, p.port).isSorted()",
    "object.spec.?type.orValue('ClusterIP') == 'ClusterIP'",
    "object.spec.color == 'red'",
    "object.status.phase == 'Running'",
    "object.kind == 'Pod'",
    "object.apiVersion == 'v1'",
    "object.metadata.uid == ''",
    "has(object.metadata.managedFields)",
    "has(object.metadata.creationTimestamp)",
    "object.metadata.generation == 1",
    "has(object.metadata.namespace) && object.metadata.namespace == request.namespace",
    "oldObject != null && object != null && object.metadata.labels == oldObject.metadata.labels",
    "oldObject.data == object.data",
    "oldObject.spec != object.spec",
    "request.operation == 'CREATE'",
    "request.operation in ['CREATE', 'UPDATE']",
    "request.operation == 'DELETE' || object != null",
    "request.kind.kind == 'ConfigMap'",
    "request.kind.group == '' && request.kind.version == 'v1'",
    "request.requestKind.version == request.kind.version",
    "request.resource.resource == 'pods'",
    "request.requestResource.version == 'v1'",
    "has(request.subResource) && request.subResource == 'status'",
    "request.subResource == ''",
    "request.requestSubResource == 'scale'",
    "request.name == 'a'",
    "request.name != ''",
    "request.namespace.startsWith('a')",
    "request.dryRun",
    "has(request.dryRun) && !request.dryRun",
    "request.options == null",
    "has(request.options) && has(request.options.kind)",
    "request.options.kind == 'CreateOptions'",
    "request.options.?fieldManager.orValue('') == ''",
    "request.options.?propagationPolicy.orValue('') == ''",
    "request.uid.size() == 36",
    "'system:masters' in request.userInfo.groups",
    "request.userInfo.groups.size() > 0",
    "has(request.userInfo.extra)",
    "namespaceObject.metadata.name == request.namespace",
    "namespaceObject.metadata.labels['env'] == 'prod'",
    "namespaceObject.metadata.?labels.?env.orValue('') != 'prod'",
    "namespaceObject.status.phase == 'Active'",
    "has(namespaceObject.metadata.uid)",
    "namespaceObject.metadata.managedFields == null",
    "namespaceObject == null",
    "authorizer.group('').resource('pods').check('list').allowed()",
    "authorizer.group('apps').resource('deployments').namespace('other').name('a').check('get').allowed()",
    "authorizer.path('/healthz').check('get').allowed()",
    "authorizer.requestResource.check('delete').allowed()",
    "authorizer.requestResource.check('create').reason() == ''",
    "authorizer.serviceAccount('default', 'nobody').group('').resource('pods').check('list').allowed()",
    "authorizer.serviceAccount('default', 'no body').group('').resource('pods').check('list').allowed()",
    "authorizer.serviceAccount('default', 'nobody').group('').resource('pods').fieldSelector('spec.nodeName=a').check('list').allowed()",
    "authorizer.serviceAccount('default', 'nobody').group('').resource('pods').labelSelector('!!').check('list').errored()",
    "authorizer.path('').check('get').allowed()",
    "isQuantity(object.data.n) && quantity(object.data.n).isGreaterThan(quantity('2'))",
    "url(object.data.url).getHost() == 'example.com'",
    "ip(object.data.ip).family() == 4",
    "cidr('10.0.0.0/8').containsIP(object.data.ip)",
    "object.data.n.find('[0-9]+') == '1'",
    "semver('1.2.3').isLessThan(semver('1.10.0'))",
    "sets.contains(['a', 'b', 'c'], [object.metadata.name])",
    "format.dns1123Label().validate(object.metadata.name).hasValue()",
    "duration('1h') > duration('30m')",
    "timestamp(object.data.when) < timestamp('2030-01-01T00:00:00Z')",
    "object.metadata.creationTimestamp < timestamp('2030-01-01T00:00:00Z')",
    "1 / (size(object.metadata.name) - 1) >= 0",
    "[1, 2][3] == 1",
    "object.metadata.name + 1 == 'a1'",
    "object.metadata.missing == 'x'",
    "dyn(1) == 'a'",
    "int('x') == 1",
    "timestamp('x') == timestamp('y')",
    "object.metadata.name.matches('(')",
    "object.metadata.name.matches(object.data.n)",
    "'%d'.format([object.metadata.name]) == ''",
    "base64.decode('!') == b''",
    "quantity('x').isInteger()",
    // Costs.
    "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f, a + b + c + d + e + f >= 0))))))",
];

/// Conditions about parameters.
const PARAMS: &[&str] = &[
    "params == null",
    "params.data.max == '1'",
    "int(params.data.max) > 1",
    "has(params.data) && has(params.data.max)",
    "params.?data.?max.orValue('0') == '0'",
    "params.metadata.name.startsWith('limits')",
    "params.metadata.?labels.?env.orValue('') == 'prod'",
    "has(params.metadata.managedFields)",
    "size(object.metadata.name) <= int(params.data.max)",
    "params.spec.color == 'red'",
    "params.kind == 'ConfigMap' && params.apiVersion == 'v1'",
];

/// Expressions that a policy cannot have.
const WRONG: &[&str] = &[
    "",
    " ",
    "object.",
    "object.metadata.name",
    "1 + 'a'",
    "unknown == 1",
    "params.data.max == '1'",
    "variables.missing == 1",
    "object.metadata.name.startsWith(1)",
    "request.missing == 'x'",
    "namespaceObject.spec.missing == 'x'",
    "authorizer.missing()",
    "Object{spec: Object.spec{}} == null",
    "self == 1",
    "has(object)",
    "object.all(x)",
    "'\\q' == ''",
    "1 == 1u",
    "[1, 'a'].all(x, x == 1)",
    "string(1) + 1 == ''",
    "object.metadata.name.matches('(')  ",
    "duration('x') == duration('1s')",
    "oldObject.metadata.name == object.metadata.name && (",
    "true ? 1 : 'a'",
    "true;",
    "size(1) == 1",
];

/// Texts, some of which no message may be.
const TEXTS: &[&str] = &[
    "'no ' + object.metadata.name",
    "'at most ' + string(2) + ' of ' + request.operation",
    "object.metadata.name",
    "string(object.spec.replicas) + ' replicas'",
    "'labels: %s'.format([object.metadata.labels])",
    "'%s %d %.2f %b %x'.format(['a', 1, 2.5, true, 255])",
    "object.metadata.labels.app",
    "object.data.n",
    "''",
    "'  '",
    "'a\\nb'",
    "' padded '",
    "'x'.replace('x', '\\u00e9\\u4e16')",
    "object.metadata.missing",
    "request.name + '/' + request.namespace",
    "'%s'.format([object.metadata.name.split('')])",
    "object.metadata.labels.map(k, k + '=' + object.metadata.labels[k]).join(',')",
    "namespaceObject.metadata.name == '' ? 'none' : 'some'",
    "string(oldObject == null)",
];

/// Expressions of any type, for variables.
const VALUES: &[&str] = &[
    "1",
    "'a'",
    "object.metadata.name",
    "size(object.metadata.name)",
    "object.spec.containers",
    "object.?data.orValue({})",
    "has(object.metadata.labels) ? object.metadata.labels : {}",
    "object.spec.replicas + 1",
    "object.metadata.missing",
    "request.operation",
    "[1, 2, 3].filter(x, x > 1)",
    "namespaceObject.metadata.labels",
    "optional.of(1)",
    "optional.none()",
    "quantity('1Gi')",
    "duration('1h')",
    "timestamp('2026-01-01T00:00:00Z')",
    "authorizer.requestResource",
    "b'abc'",
    "1.5",
    "2u",
    "null",
    "type(1)",
];

/// Uses of a variable.
const OF_VARIABLE: &[&str] = &[
    "variables.NAME == 1",
    "variables.NAME == 'a'",
    "variables.NAME > 2",
    "size(variables.NAME) < 3",
    "variables.NAME.size() == 1",
    "variables.NAME.startsWith('a')",
    "has(variables.NAME)",
    "'app' in variables.NAME",
    "variables.NAME.all(x, x != null)",
    "variables.NAME.hasValue()",
    "type(variables.NAME) == int",
    "variables.NAME == variables.NAME",
];

/// Values that a mutation sets.
const MUTATIONS: &[&str] = &[
    "Object{metadata: Object.metadata{labels: {'added': 'yes'}}}",
    "Object{metadata: Object.metadata{labels: {'app': 'changed'}, annotations: {'example.com/note': object.metadata.name}}}",
    "Object{metadata: Object.metadata{labels: object.metadata.labels}}",
    "Object{metadata: Object.metadata{?labels: optional.none()}}",
    "Object{metadata: Object.metadata{finalizers: ['example.com/hold']}}",
    "Object{metadata: Object.metadata{name: 'other'}}",
    "Object{metadata: Object.metadata{labels: {'app': 1}}}",
    "Object{metadata: Object.metadata{labels: {'bad key!': ''}}}",
    "Object{data: {'added': string(size(object.metadata.name))}}",
    "Object{data: {'n': '5'}}",
    "Object{spec: Object.spec{replicas: 2}}",
    "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}",
    "Object{spec: Object.spec{replicas: -1}}",
    "Object{spec: Object.spec{replicas: '2'}}",
    "Object{spec: Object.spec{color: 'blue'}}",
    "Object{spec: Object.spec{unknown: 'blue'}}",
    "Object{spec: Object.spec{list: ['z']}}",
    "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'side', image: 'example.com/side:1'}]}}",
    "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: 'Always'})}}",
    "Object{spec: Object.spec{containers: [Object.spec.containers{image: 'example.com/unnamed:1'}]}}",
    "Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a', operator: 'Exists'}]}}",
    "Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {'added': 'yes'}}}}}",
    "Object{spec: Object.spec{ports: [Object.spec.ports{port: 81, name: 'more'}]}}",
    "Object{status: Object.status{phase: 'Running'}}",
    "Object{}",
    "Object{kind: 'Other'}",
    "Object{metadata: {'labels': {'added': 'yes'}}}",
    "has(object.metadata.labels) ? Object{} : Object{metadata: Object.metadata{labels: {'added': 'yes'}}}",
    "object.metadata.missing ? Object{} : Object{}",
    "Object{metadata: Object.spec{}}",
    "Object.metadata{labels: {'a': 'b'}}",
    "{'metadata': {'labels': {'a': 'b'}}}",
    "Object{missing.name: 1}",
    "'text'",
];

/// Lists of operations of a patch.
const PATCHES: &[&str] = &[
    "[JSONPatch{op: 'add', path: '/metadata/labels/added', value: 'yes'}]",
    "has(object.metadata.labels) ? [JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/a~b'), value: 'yes'}] : [JSONPatch{op: 'add', path: '/metadata/labels', value: {'added': 'yes'}}]",
    "[JSONPatch{op: 'replace', path: '/metadata/labels/app', value: 'changed'}]",
    "[JSONPatch{op: 'remove', path: '/metadata/labels/app'}]",
    "[JSONPatch{op: 'remove', path: '/metadata/labels'}]",
    "[JSONPatch{op: 'test', path: '/metadata/name', value: 'a'}, JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a': 'b'}}]",
    "[JSONPatch{op: 'test', path: '/metadata/name', value: 'zzz'}]",
    "[JSONPatch{op: 'copy', from: '/metadata/labels', path: '/metadata/annotations'}]",
    "[JSONPatch{op: 'move', from: '/metadata/labels', path: '/metadata/annotations'}]",
    "[JSONPatch{op: 'add', path: '/data/added', value: string(size(object.metadata.name))}]",
    "[JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas + 1}]",
    "[JSONPatch{op: 'replace', path: '/spec/replicas', value: 1.5}]",
    "[JSONPatch{op: 'add', path: '/spec/containers/-', value: Object.spec.containers{name: 'side', image: 'example.com/side:1'}}]",
    "[JSONPatch{op: 'add', path: '/spec/containers/0', value: {'name': 'first', 'image': 'example.com/first:1'}}]",
    "object.spec.containers.map(c, JSONPatch{op: 'add', path: '/metadata/annotations', value: {'image': c.image}})",
    "[JSONPatch{op: 'replace', path: '/spec', value: Object.spec{}}]",
    "[JSONPatch{op: 'replace', path: '/metadata/name', value: 'other'}]",
    "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'when': timestamp('2026-01-01T00:00:00Z')}}]",
    "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'n': b'abc'}}]",
    "[JSONPatch{op: 'add', path: '/metadata/labels', value: {1: 'one'}}]",
    "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'d': duration('90s')}}]",
    "[JSONPatch{op: 'add', path: '/metadata/labels', value: null}]",
    "[JSONPatch{op: 'add', path: '/metadata/labels', value: dyn(object.metadata)}]",
    "[JSONPatch{op: 'add', path: '/metadata/labels', value: quantity('1')}]",
    "[JSONPatch{op: 'add', path: 'metadata'}]",
    "[JSONPatch{op: 'invalid', path: '/metadata/labels', value: 'a'}]",
    "[JSONPatch{path: '/metadata/labels', value: 'a'}]",
    "[JSONPatch{op: 'add', value: 'a'}]",
    "[]",
    "[JSONPatch{op: 'add', path: 1, value: 'a'}]",
    "JSONPatch{op: 'add', path: '/a', value: 'a'}",
    "['a']",
    "[Object{}]",
    "[JSONPatch{op: 'add', path: '/metadata/labels/x', value: object.metadata.missing}]",
    "[JSONPatch{op: 'add', path: '/metadata/labels/x', value: authorizer.requestResource.check('get').allowed() ? 'y' : 'n'}]",
    "[JSONPatch{other: 'add'}]",
];

fn of(random: &mut Random, from: &[&str]) -> String {
    random.pick(from).copied().unwrap_or_default().to_owned()
}

/// A condition.
pub(super) fn condition(random: &mut Random, scope: &Scope) -> String {
    match random.percent(3) {
        true => of(random, WRONG),
        false => nested(random, scope, 0),
    }
}

fn nested(random: &mut Random, scope: &Scope, depth: usize) -> String {
    let roll = if depth < DEPTH_MAX { random.below(100) } else { 100 };
    let inner = |random: &mut Random| nested(random, scope, depth + 1);
    match roll {
        0..8 => format!("!({})", inner(random)),
        8..16 => format!("({}) && ({})", inner(random), inner(random)),
        16..24 => format!("({}) || ({})", inner(random), inner(random)),
        24..28 => format!("({}) ? ({}) : ({})", inner(random), inner(random), inner(random)),
        28..30 => format!("[1, 2].exists(x, ({}) && x > 1)", inner(random)),
        _ if scope.has_params && random.percent(30) => of(random, PARAMS),
        _ if !scope.variables.is_empty() && random.percent(40) => {
            let name = random.pick(&scope.variables).cloned().unwrap_or_default();
            of(random, OF_VARIABLE).replace("NAME", &name)
        }
        _ => of(random, CONDITIONS),
    }
}

/// A text.
pub(super) fn text(random: &mut Random, scope: &Scope) -> String {
    match random.below(100) {
        0..4 => of(random, WRONG),
        4..12 => {
            format!("({}) ? {} : {}", nested(random, scope, 2), text_of(random), text_of(random))
        }
        12..16 => "authorizer.requestResource.check('get').reason()".to_owned(),
        16..22 if scope.has_params => "'at most ' + params.data.max".to_owned(),
        _ => text_of(random),
    }
}

fn text_of(random: &mut Random) -> String {
    of(random, TEXTS)
}

/// A value of any type.
pub(super) fn value(random: &mut Random, scope: &Scope) -> String {
    match random.below(100) {
        0..4 => of(random, WRONG),
        4..25 => nested(random, scope, 2),
        25..35 => of(random, TEXTS),
        _ => of(random, VALUES),
    }
}

/// What an apply configuration sets.
pub(super) fn mutation(random: &mut Random, scope: &Scope) -> String {
    match random.below(100) {
        0..2 => of(random, WRONG),
        2..12 => {
            let (a, b) = (of(random, MUTATIONS), of(random, MUTATIONS));
            format!("({}) ? {a} : {b}", nested(random, scope, 2))
        }
        _ => of(random, MUTATIONS),
    }
}

/// The operations of a patch.
pub(super) fn patch(random: &mut Random, scope: &Scope) -> String {
    match random.below(100) {
        0..2 => of(random, WRONG),
        2..10 => {
            let (a, b) = (of(random, PATCHES), of(random, PATCHES));
            format!("({}) ? {a} : {b}", nested(random, scope, 2))
        }
        10..18 => format!("{} + {}", of(random, PATCHES), of(random, PATCHES)),
        _ => of(random, PATCHES),
    }
}
