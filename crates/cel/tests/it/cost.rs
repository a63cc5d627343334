//! What evaluation costs: cel-go's and Kubernetes' own cases, with constants folded as Kubernetes
//! does.

use serde_json::json;
use setpoint_cel::eval::{Context, EXPRESSION_COST_MAX, Error, Program};
use setpoint_cel::{Env, Macros, Type, Value, check, parse};

fn program(expression: &str, dynamic: bool) -> Program {
    let ty = |ty: Type| if dynamic { Type::Dyn } else { ty };
    let env = Env::kubernetes()
        .variable("a", Type::Bool)
        .variable("text", ty(Type::String))
        .variable("number", ty(Type::Int))
        .variable("list", Type::list(Type::Int))
        .variable("nested", Type::list(Type::list(Type::Int)))
        .variable("map", Type::map(Type::String, Type::map(Type::String, Type::Int)));
    let ast = parse(expression, &Macros::KUBERNETES).unwrap_or_else(|e| panic!("{e}"));
    Program::new(&check(ast, &env).unwrap_or_else(|e| panic!("{e}")))
}

fn cost_of(expression: &str, dynamic: bool) -> u64 {
    let variables = json!({
        "a": true,
        "text": "x".repeat(500),
        "number": 1,
        "list": [1, 2, 3, 4, 5],
        "nested": [[1, 1], [1, 1]],
        "map": {"val": {"f": 4}},
    });
    let variables = ["a", "text", "number", "list", "nested", "map"]
        .map(|name| (name, Value::dynamic(&variables[name])));
    let mut context = Context::default();
    let result = program(expression, dynamic).evaluate(&mut context, &variables);
    assert!(result.is_ok(), "{expression}: {result:?}");
    context.cost()
}

#[test]
fn expressions_cost_what_they_cost_in_kubernetes() {
    for (expression, cost) in [
        // Constants and their operators.
        ("[1, 2, 3]", 0),
        ("{'a': 1}", 0),
        ("[1, 2, 3, number]", 11),
        ("{'a': number}", 31),
        ("1 + 1", 1),
        ("true ? 1 : 2", 0),
        ("false ? false : 1 > 3", 1),
        ("a || a || a", 1),
        ("a && a && a", 3),
        ("(1 > 2 || 2 > 1) == true", 3),
        ("'12345678901234567890' == '123456789012345678901234567890'", 2),
        ("timestamp('2023-01-01T00:00:00Z') == timestamp('2023-01-01T00:00:00Z')", 1),
        // Variables, fields and indices.
        ("number", 1),
        ("list[0]", 2),
        ("list[number]", 2),
        ("list[number + 1]", 4),
        ("map.val.f", 3),
        ("has(map.val)", 1),
        ("has(map.val.f)", 2),
        ("map.?val.f", 3),
        ("map.?nothing.f", 1),
        ("number > 0 ? list : list", 2),
        ("(number > 2 ? list : list)[0]", 3),
        // Texts.
        ("text.size()", 2),
        ("text.matches('[0-9]')", 103),
        ("text.contains(text)", 2502),
        ("text.startsWith('x')", 51),
        ("bytes(text)", 51),
        ("'abcdefg'.contains('val1' + 'val2222222')", 4),
        ("'ABCDEFGHIJ abcdefghij'.lowerAscii()", 3),
        ("'ABCDEFGHIJ abcdefghij'.lowerAscii() == 'abcdefghij ABCDEFGHIJ'.lowerAscii()", 9),
        ("strings.quote('ABCDEFGHIJ abcdefghij')", 3),
        ("'abc 123 def 123'.replace('123', '456')", 3),
        ("'abc 123 def 123'.split(' ')", 3),
        ("'abc 123 def 123'.substring(5)", 2),
        ("['aa', 'bb', 'cc', 'd', 'e', 'f', 'g', 'h', 'i', 'j'].join(' ')", 5),
        ("'abc 123 def 123'.find('123')", 2),
        // Lists.
        ("2 in [1, 2, 3]", 0),
        ("number in [1, 2, 3]", 1),
        ("number in list", 7),
        ("list + list", 3),
        ("list.sum()", 6),
        ("list.sort()", 1 + 50 + 11),
        ("list.slice(0, 2)", 1 + 2 + 11),
        ("lists.range(5)", 5 + 11),
        ("sets.contains(list, list)", 2 + 25 + 1),
        ("sets.equivalent(list, list)", 2 + 50 + 1),
        // Loops.
        ("list.all(x, true)", 1 + 5 * 3 + 1),
        ("nested.all(x, x.all(y, y == 1))", 1 + 2 * (3 + 1 + 2 * 5 + 1) + 1),
        ("list.filter(x, x % 2 == 0)", 1 + 5 * 3 + 2 * 13 + 1),
        ("list.map(x, x)", 1 + 5 * 13 + 1),
        ("map.all(k, map[k].f > 3)", 9),
        ("list.exists_one(x, x == 1)", 1 + 5 * 2 + 2 + 2),
        ("list.transformMap(i, v, v)", 1 + 5 * 4 + 1),
        // Kubernetes' libraries.
        ("quantity('1Gi')", 1),
        ("quantity('1Gi').add(quantity('1Gi')).compareTo(quantity('1Gi'))", 5),
        ("ip('192.168.0.1').family()", 3),
        ("cidr('192.168.0.0/24').containsIP('192.168.0.1')", 2 + 3),
        ("format.dns1123Label().validate('my-label-name')", 1 + 2 * 8),
        ("url('https://kubernetes.io/') == url('https://kubernetes.io/')", 3 + 3 + 1),
    ] {
        assert_eq!(cost_of(expression, false), cost, "{expression}");
    }
}

#[test]
fn overloads_that_are_chosen_when_it_runs_cost_one() {
    assert_eq!(cost_of("text.startsWith('x')", true), 1 + 50);
    assert_eq!(cost_of("text + text", false), 2 + 100);
    assert_eq!(cost_of("text + text", true), 3);
    assert_eq!(cost_of("text < text", true), 3);
}

#[test]
fn an_expression_over_its_limit_is_cancelled() {
    let program = program("list.all(x, list.all(y, true))", false);
    let tree = json!((0..1000).collect::<Vec<_>>());
    let variables = [("list", Value::dynamic(&tree))];
    let mut context = Context::new(EXPRESSION_COST_MAX);
    let error = program.evaluate(&mut context, &variables).unwrap_err();
    assert_eq!(error, Error::CostLimit);
    assert_eq!(error.to_string(), "operation cancelled: actual cost limit exceeded");
}

#[test]
fn a_cancelled_expression_is_not_absorbed() {
    let program = program("list.all(x, list.all(y, true)) || true", false);
    let tree = json!((0..1000).collect::<Vec<_>>());
    let variables = [("list", Value::dynamic(&tree))];
    let result = program.evaluate(&mut Context::default(), &variables);
    assert_eq!(result.unwrap_err(), Error::CostLimit);
}

#[test]
fn loops_ask_whether_to_stop() {
    let program = program("list.all(x, true)", false);
    let tree = json!((0..1000).collect::<Vec<_>>());
    let variables = [("list", Value::dynamic(&tree))];
    let asked = std::cell::Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() == 3
    };
    let mut context = Context::default().interrupted_by(&stop);
    let result = program.evaluate(&mut context, &variables);
    assert_eq!(result.unwrap_err(), Error::Interrupted);
    assert_eq!(context.cost(), 1 + 300 * 3);
}

#[test]
fn values_that_share_their_parts_are_not_compared_for_ever() {
    // Each step doubles what an equal value has to look at, and costs next to nothing.
    let doubled = "optional.of([1])".to_owned() + &".optMap(x, [x, x])".repeat(6);
    let expression = format!("{doubled} == {doubled}");
    let ast = parse(&expression, &Macros::KUBERNETES).unwrap();
    let checked = check(ast, &Env::kubernetes()).unwrap();
    let result = Program::new(&checked).evaluate(&mut Context::default(), &());
    assert_eq!(result.ok().and_then(|value| value.to_json()), Some(json!(true)));
    let doubled = "[[1]]".to_owned() + &".map(x, [x, x])".repeat(40);
    let expression = format!("{doubled} == {doubled}");
    let ast = parse(&expression, &Macros::KUBERNETES).unwrap();
    let checked = check(ast, &Env::kubernetes()).unwrap();
    let result = Program::new(&checked).evaluate(&mut Context::default(), &());
    assert_eq!(result.unwrap_err(), Error::CostLimit);
}
