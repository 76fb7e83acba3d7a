use schemars::JsonSchema;
use serde_json::json;

use super::size::{DEPTH_MAX, EXPANDED_MAX, NODES_MAX, PATTERN_CHARS_MAX, PATTERNS_MAX};
use super::*;

fn complaints(schema: &Value, value: &Value) -> Vec<String> {
    Schema::compile(schema).unwrap().validate(value).err().unwrap_or_default()
}

#[test]
fn complaints_name_the_path() {
    let schema = json!({
        "type": "object",
        "properties": {
            "entries": {
                "type": "array",
                "maxItems": 2,
                "items": {"type": "object", "properties": {"status": {"enum": ["a", "b"]}}}
            },
            "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2}
        },
        "required": ["entries"],
        "additionalProperties": false
    });
    for (value, want) in [
        (json!({"entries": []}), &[][..]),
        (json!({}), &[r#"top level: "entries" is a required property"#]),
        (json!(3), &[r#"top level: value is not of type "object""#]),
        (
            json!({"entries": [{"status": "secret"}, 7]}),
            &[
                r#"/entries/0/status: value is not one of "a" or "b""#,
                r#"/entries/1: value is not of type "object""#,
            ],
        ),
        (json!({"entries": [{}, {}, {}]}), &["/entries: value has more than 2 items"]),
        (
            json!({"entries": [], "name": "A", "more": 1}),
            &[
                "top level: Additional properties are not allowed ('more' was unexpected)",
                "/name: value is shorter than 2 characters",
                r#"/name: value does not match "^[a-z]+$""#,
            ],
        ),
    ] {
        let mut found = complaints(&schema, &value);
        found.sort();
        let mut want: Vec<_> = want.iter().map(ToString::to_string).collect();
        want.sort();
        assert_eq!(found, want, "{value}");
    }
}

#[test]
fn complaints_are_limited() {
    let schema = json!({"type": "array", "items": {"type": "integer"}});
    let found = complaints(&schema, &json!(vec!["no"; 1000]));
    assert_eq!(found.len(), COMPLAINTS_MAX + 1);
    assert_eq!(found[COMPLAINTS_MAX], "more than 16 problems");
}

#[test]
fn what_is_no_schema_does_not_compile() {
    for (schema, want) in [
        (json!({"type": "objekt"}), "the schema cannot be used: /type: "),
        (json!(3), "the schema cannot be used: top level: "),
        (json!({"$ref": "https://example.org/schema.json"}), "the schema cannot be used: "),
        (json!({"$ref": "file:///etc/passwd"}), "the schema cannot be used: "),
        (json!({"$ref": "#/nowhere"}), "the schema cannot be used: "),
        (json!({"pattern": "("}), "the schema cannot be used: "),
    ] {
        let error = Schema::compile(&schema).unwrap_err().to_string();
        assert!(error.starts_with(want), "{schema} gave {error}");
    }
}

/// A pattern that would backtrack forever ends, and does not match.
#[test]
fn a_hostile_pattern_ends() {
    let schema = json!({"type": "string", "pattern": "^(a|aa)+(?=c)$"});
    assert_eq!(complaints(&schema, &json!("a".repeat(200))).len(), 1);
}

/// The schemas that `schemars` derives accept the values that `serde` reads, and their recursive
/// references stay within the document.
#[test]
fn derived_schemas_compile() {
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Tree {
        name: Option<String>,
        size: u8,
        children: Vec<Tree>,
    }
    let schema = crate::tools::parameters::<Tree>();
    let leaf = json!({"size": 1, "children": []});
    assert_eq!(complaints(&schema, &json!({"name": null, "size": 1, "children": [leaf]})), [""; 0]);
    assert_eq!(
        complaints(&schema, &json!({"size": 256, "children": [{"children": []}]})),
        [
            "/size: value is greater than the maximum of 255",
            r#"/children/0: "size" is a required property"#,
        ]
    );
}

/// The error for a value of several possible kinds helps a model to repair it.
#[test]
fn of_alternatives_the_closest_is_named() {
    #[derive(JsonSchema)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Shape {
        Circle { radius: f64 },
        Square { side: f64, name: Option<String> },
    }
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Drawing {
        shapes: Vec<Shape>,
    }
    let schema = crate::tools::parameters::<Drawing>();
    let circle = json!({"kind": "circle", "radius": "wide"});
    assert_eq!(
        complaints(&schema, &json!({"shapes": [circle]})),
        ["/shapes/0: value is not valid under any of the schemas listed in the 'oneOf' keyword; \
          closest: /shapes/0/radius: value is not of type \"number\""]
    );
    let square = json!({"kind": "square", "side": 1.0, "name": "a"});
    assert_eq!(complaints(&schema, &json!({"shapes": [square]})), [""; 0]);
}

/// Schemas also come from clients, so a schema that would take seconds to compile is refused at
/// once.
#[test]
fn a_schema_that_is_too_large_is_refused() {
    let patterns = |count: usize, pattern: &str| {
        let members = (0..count)
            .map(|number| (format!("p{number}"), json!({ "type": "string", "pattern": pattern })));
        json!({ "type": "object", "properties": members.collect::<serde_json::Map<_, _>>() })
    };
    let by_key = |count: usize| {
        let members = (0..count).map(|number| (format!("^{number}"), json!(true)));
        json!({ "patternProperties": members.collect::<serde_json::Map<_, _>>() })
    };
    let said = |schema: &Value| {
        Schema::compile(schema).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(said(&patterns(PATTERNS_MAX, "^[a-z]+$")), "");
    assert_eq!(
        [
            said(&patterns(PATTERNS_MAX + 1, "^[a-z]+$")),
            said(&by_key(PATTERNS_MAX + 1)),
            said(&patterns(2, &"a".repeat(PATTERN_CHARS_MAX / 2 + 1))),
            said(&json!({ "enum": vec![0; NODES_MAX] })),
        ],
        [
            "the schema cannot be used: it has 65 patterns, more than 64",
            "the schema cannot be used: it has 65 patterns, more than 64",
            "the schema cannot be used: its patterns have 8194 characters, more than 8192",
            "the schema cannot be used: it has more than 20000 values",
        ]
    );
}

/// A schema with `depth` parts, each of which refers to the next one `width` times.
fn chain(depth: usize, width: usize) -> Value {
    let defs = (0..depth).map(|number| {
        let next = json!({ "$ref": format!("#/$defs/d{}", number + 1) });
        (format!("d{number}"), json!({ "allOf": vec![next; width] }))
    });
    let mut defs: serde_json::Map<_, _> = defs.collect();
    defs.insert(format!("d{depth}"), json!({ "type": "integer" }));
    json!({ "$ref": "#/$defs/d0", "$defs": defs })
}

/// Earlier, the first schema took 2^40 steps to validate a number, and the second one overflowed
/// the stack, which ended the process.
#[test]
fn references_that_branch_or_never_end_are_refused() {
    let said = |schema: &Value| Schema::compile(schema).map(|_| ()).unwrap_err().to_string();
    let branching = format!("its references expand to more than {EXPANDED_MAX} values");
    let deep = format!("it is nested deeper than {DEPTH_MAX}, references included");
    for (schema, want) in [
        (chain(40, 2), &branching),
        (chain(4000, 1), &deep),
        // References by an anchor, by an escaped name, and to the whole document.
        (by_anchor(40), &branching),
        (
            serde_json::from_str(&chain(40, 2).to_string().replace("/$defs/d", "/%24defs/d"))
                .unwrap(),
            &branching,
        ),
        (named(chain(40, 2)), &branching),
    ] {
        assert_eq!(said(&schema), format!("the schema cannot be used: {want}"));
    }
    let inner = json!({ "properties": { "a": { "$id": "b", "type": "integer" } } });
    assert!(said(&inner).contains("an `$id` of its own"));
    assert!(said(&json!({ "$ref": "b#/c" })).contains("not to a part of it"));
    assert_eq!(complaints(&chain(8, 2), &json!(7)), [""; 0]);
    assert_eq!(complaints(&named(chain(8, 2)), &json!("a")).len(), COMPLAINTS_MAX + 1);
}

fn by_anchor(depth: usize) -> Value {
    let defs = (0..depth).map(|number| {
        let next = json!({ "$ref": format!("#d{}", number + 1) });
        (format!("{number}"), json!({ "$anchor": format!("d{number}"), "allOf": [next, next] }))
    });
    let mut defs: serde_json::Map<_, _> = defs.collect();
    defs.insert("last".into(), json!({ "$anchor": format!("d{depth}"), "type": "integer" }));
    json!({ "$ref": "#d0", "$defs": defs })
}

/// The same schema with an `$id`, which its references use.
fn named(schema: Value) -> Value {
    let text = schema.to_string().replace("\"#/", "\"https://example.org/a#/");
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    schema["$id"] = json!("https://example.org/a");
    schema
}

/// Validation would take 2^100 steps: each member is checked twice, and each of its members four
/// times. It ends early, and the async variant does not block the worker.
#[tokio::test]
async fn validating_has_a_maximum_of_steps() {
    let twice = json!({ "anyOf": [{ "$ref": "#" }, { "$ref": "#" }] });
    let schema = json!({ "properties": { "a": twice, "b": { "type": "integer" } } });
    let mut value = json!({ "b": "no" });
    for _ in 0..100 {
        value = json!({ "a": value });
    }
    let schema = Schema::compile_async(&schema).await.unwrap();
    let want = Err(vec!["the value does not fit, in too many places to name them".to_owned()]);
    assert_eq!(schema.validate_async(&value).await, want);
    assert_eq!(schema.validate(&value), want);
    value["a"] = json!({ "a": { "b": 7 } });
    assert_eq!(schema.validate_async(&value).await, Ok(()));
}

/// Many strings and a backtracking pattern: each match is limited, and so is their number.
#[tokio::test]
async fn matching_has_a_maximum_of_steps() {
    let item = json!({ "type": "string", "pattern": "^(a|aa)+(?=c)$" });
    let schema = json!({ "type": "array", "items": item });
    let schema = Schema::compile_async(&schema).await.unwrap();
    let many = json!(vec!["b"; 100_000]);
    assert_eq!(
        schema.validate_async(&many).await,
        Err(vec!["the value does not fit, in too many places to name them".to_owned()])
    );
}

/// While schemas are compiled, the only worker runs other tasks.
#[tokio::test]
async fn large_schemas_are_compiled_beside_the_worker() {
    let members = (0..PATTERNS_MAX).map(|number| {
        (format!("p{number}"), json!({ "pattern": format!("(?i:\\w{{60}}){number}") }))
    });
    let schema = json!({ "properties": members.collect::<serde_json::Map<_, _>>() });
    let here = std::thread::current().id();
    assert_eq!(on_a_thread(move || std::thread::current().id() == here).await, Some(false));
    let compiling = tokio::spawn(async move { Schema::compile_async(&schema).await.is_ok() });
    // The first poll only hands the work over.
    tokio::task::yield_now().await;
    assert!(!compiling.is_finished());
    assert!(compiling.await.unwrap());
}
