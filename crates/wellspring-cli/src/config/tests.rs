//! Valid and invalid configurations.

use std::path::Path;

use super::agent::{NAME_CHARS_MAX, SCHEMA_BYTES_MAX};
use super::*;

/// The files of a directory; the first one is the configuration.
fn read(files: &[(&str, &str)]) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let environment = |name: &str| (name == "TOKEN").then(|| "sk-secret".to_owned());
    let config = Config::read(&folder.path().join(FILE), &environment);
    config.map_err(|problems| without(&problems.to_string(), folder.path()))
}

/// A text without the path of the temporary directory.
fn without(text: &str, folder: &Path) -> String {
    text.replace(&format!("{}/", folder.display()), "").replace(folder.to_str().unwrap(), ".")
}

/// The problems of a `wellspring.toml`.
fn wrong(text: &str) -> String {
    let problems = read(&[(FILE, text)]).expect_err(text);
    problems.strip_prefix("the configuration is not valid\n").unwrap().to_owned()
}

/// The problems of an agent's front matter.
fn wrong_agent(text: &str) -> String {
    let problems = read(&[(FILE, ""), ("agents/a.md", text)]).expect_err(text);
    problems.strip_prefix("the configuration is not valid\n").unwrap().to_owned()
}

#[test]
fn mistakes_have_a_line_and_a_remedy() {
    let broken = [
        "demo = maybe",
        "[server\nlisten = 1",
        "a = 1\na = 2",
        "defualt_agent = \"x\"",
        "xyz = 1",
        "\n\n[server]\nlissen = \"127.0.0.1:1\"",
        "[server]\nlisten = 7600",
        "[server]\nlisten = \"localhost\"",
        "[server]\nlimits = 3",
        "[server.limits]\nruns = -1\nbody_bytes = \"8M\"",
        "[server]\ndrain = \"20 parsecs\"\nretention = -3",
        "[store]\ndurability = \"powerloss\"",
        "[store]\nkind = \"nats\"",
        "[store]\nkind = \"natz\"\naddress = \"nats://me:secret@host\"\nlease = \"1ms\"",
        "[store]\nkind = \"nats\"\naddress = \"nats://host\"\n[store.nats]\nreplicas = 9\nuser = \"me\"\ncertificate_file = \"c\"",
        "[store.nats]\ntoken_env = \"A\"\ntoken_file = \"b\"\ncredentials_file = \"c\"\nsteam = \"x\"",
        "default_agent = \"revewer\"\n[agents.reviewer]\nmodel = \"anthropic\"",
        "[channels.mine]\nstream = true",
        "[channels.telegram]\nagent = \"nobody\"",
        "[channels.whatsapp]\nsecrets = { token = \"x\" }\nwhen_busy = \"wait\"",
        "[channels.slack]\nsecrets = { token = \"x\" }",
        "default_agent = 3",
        "agents_directory = \"nowhere\"",
        "[providers.acme]\nbase_url = \"http://localhost\"",
        "[providers.acme]\nkind = \"openai-chatt\"\nbase_url = \"http://localhost\"",
        "[providers.acme]\nkind = \"openai-chat\"",
        "[providers.anthropic]\nkey_env = \"A\"\nkey_file = \"b\"",
        "[providers.anthropic]\nvendor = \"groq\"",
        "[providers.anthropic]\nheaders = { x-key = \"${NOT_SET}\", y = 1 }",
        "[providers.anthropic.breaker]\nfailures = 0",
        "[providers.anthropic]\nthinking = []",
        "providers = 1",
        "[agents.a]\ndescription = \"nothing thinks\"",
        "[agents.a]\nmodel = \"antropic/claude\"",
        "[agents.a]\nmodel = \"claude-sonnet-4-5\"",
        "[agents.a]\nmodel = 3",
        "[providers.acme]\nkind = \"ollama\"\nmodels = [\"small\", \"large\"]\n[agents.a]\nmodel = \"acme/lage\"",
        "[agents.a]\nmodel = \"openai\"\nacp = \"claude\"",
        "[agents.a]\nfallback = [\"openai\"]",
        "[agents.a]\nacp = { mode = \"x\" }",
        "[agents.a]\nacp = \"node 'agent.js\"",
        "[agents.a]\nag_ui = \"claude\"",
        "[agents.a]\nag_ui = { silence = \"1s\" }",
        "[agents.a]\nacp = \"claude\"\nag_ui = \"http://localhost:1\"",
        "[agents.a]\nopenclaw = \"http://localhost:1\"",
        "[agents.a]\nopenclaw = { token_env = \"T\" }",
        "[agents.a]\ndify = { app = \"chatflow\" }",
        "[agents.a]\nmodel = \"openai\"\ntools = [\"read_fil\", \"teleport\"]",
        "[agents.a]\nmodel = \"openai\"\nmcp = [\"file\"]\n[mcp.files]\ncommand = \"x\"",
        "[agents.a]\nmodel = \"openai\"\nmcp = [\"x\", \"y\"]\n[mcp.x]\nurl = \"http://x\"\n[mcp.y]\nurl = \"http://y\"\nprefix = \"x\"",
        "[mcp.files]\nargs = []",
        "[mcp.files]\ncommand = \"x\"\nurl = \"http://x\"",
        "[mcp.files]\nurl = \"http://x\"\ncwd = \"/\"",
        "[mcp.files]\ncommand = \"x\"\napproval = { write = \"maybe\" }",
        "[agents.a]\nmodel = \"openai\"\napproval = [{ tool = \"x\", arguments = { a = \"(\" } }, { decide = \"maybe\" }]",
        "[agents.a]\nmodel = \"openai\"\napproval = [{ arguments = \"^git\" }, { arguments = { a = 3 } }, { arguments = { a = { rwa = \"x\" } } }]",
        "[agents.a]\nmodel = \"openai\"\neditors = \"everyone\"",
        "[agents.a]\nmodel = \"openai\"\nsub_agents = [\"bb\"]\n[agents.b]\nmodel = \"openai\"",
        "[agents.a]\nmodel = \"openai\"\noutput = { type = \"objekt\" }",
        "[agents.a]\nmodel = \"openai\"\noutput_file = \"schema.json\"",
        "[agents.a]\nmodel = \"openai\"\ndirectory = \"nowhere\"",
        "[agents.a]\nmodel = \"openai\"\nallow_addresses = [\"home\"]",
        "[agents.a]\nmodel = \"openai\"\nqueue = \"paralel\"\nwhen_busy = \"wait\"",
        "[agents.a]\nmodel = \"openai\"\n[agents.a.limits]\nturn = 3\nattempts = 0",
        "[agents.a]\nmodel = \"openai\"\n[agents.a.timeouts]\nrun = \"soon\"",
        "[agents.demo]\nmodel = \"openai\"",
        "[agents.\"a b\"]\nmodel = \"openai\"",
        "[telemetry]\nendpoint = 4318\nheaders = \"x\"",
    ];
    let told: Vec<_> = broken.iter().map(|text| format!("{text}\n=>\n{}\n", wrong(text))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn mistakes_in_front_matter_have_a_line_and_a_remedy() {
    let broken = [
        "No head.",
        "---\nmodel: openai\nNo end.",
        "---\nmodle: openai\n---\nBody.",
        "---\n---\nBody.",
        "---\nmodel: openai\ntools: clock\n---\n",
        "---\nmodel: openai\ninstructions: Be brief.\n---\nBe long.",
        "---\nmodel: openai\nstreaming: no\n---\n",
        "---\nmodel: openai\nmodel: openai\n---\n",
        "---\nmodel: &a openai\nfallback: [*a]\n---\n",
        "---\nmodel: !!str openai\n---\n",
        "---\nmodel: [openai\n---\n",
        "---\nmodel: openai\nmcp:\n  files:\n    comand: x\n---\n",
        "---\nmodel: openai\nlimits:\n  turns: many\napproval:\n  - tool: x\n    decide: no\n---\n",
        "---\n- model\n---\n",
    ];
    let told: Vec<_> =
        broken.iter().map(|text| format!("{text}\n=>\n{}\n", wrong_agent(text))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn all_mistakes_are_told_at_once_up_to_a_maximum() {
    let text: String = (0..=problem::PROBLEMS_SHOWN_MAX).map(|n| format!("q{n} = 1\n")).collect();
    let told = wrong(&text);
    assert_eq!(told.matches("unknown key").count(), problem::PROBLEMS_SHOWN_MAX);
    assert!(told.ends_with("\nand 1 more"), "{told}");
}

#[test]
fn missing_and_oversized_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE);
    let told = || {
        let problems = Config::read(&file, &|_| None).unwrap_err();
        without(&problems.to_string(), folder.path())
    };
    insta::assert_snapshot!(told(), @"
    the configuration is not valid
    wellspring.toml: failed to read: No such file or directory (os error 2)
      choose another file with --config, or create one with `wellspring init`
    ");
    std::fs::write(&file, vec![b'#'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1]).unwrap();
    insta::assert_snapshot!(told(), @"
    the configuration is not valid
    wellspring.toml: failed to read: it has 1048577 bytes; the maximum is 1048576
      choose another file with --config, or create one with `wellspring init`
    ");
    std::fs::write(&file, "").unwrap();
    std::fs::create_dir(folder.path().join("agents")).unwrap();
    for number in 0..=AGENT_FILES_MAX {
        std::fs::write(folder.path().join(format!("agents/{number}.md")), "").unwrap();
    }
    insta::assert_snapshot!(told(), @"
    the configuration is not valid
    wellspring.toml: agents has more than 1000 files
      set `agents_directory` to a directory of agents
    ");
}

/// The largest schema and the longest name are accepted; one byte or letter more is not.
#[test]
fn schemas_and_names_have_a_size() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE);
    let schema = |bytes: u64| {
        let mut text = String::from("{}");
        text.extend(std::iter::repeat_n(' ', usize::try_from(bytes).unwrap() - 2));
        std::fs::write(folder.path().join("s.json"), text).unwrap();
    };
    let read = |name_chars: usize| {
        let name = "n".repeat(name_chars);
        let text = format!("[agents.{name}]\nmodel = \"ollama/m\"\noutput_file = \"s.json\"\n");
        std::fs::write(&file, text).unwrap();
        Config::read(&file, &|_| None).map(|_| ()).map_err(|problems| problems.to_string())
    };
    schema(SCHEMA_BYTES_MAX);
    assert_eq!(read(NAME_CHARS_MAX), Ok(()));
    let told = read(NAME_CHARS_MAX + 1).unwrap_err();
    assert!(told.contains("up to 64 letters, digits, dashes and dots"), "{told}");
    schema(SCHEMA_BYTES_MAX + 1);
    let told = read(1).unwrap_err();
    assert!(told.contains("it has 262145 bytes; the maximum is 262144"), "{told}");
}

#[test]
fn depth_has_an_end() {
    let deep =
        |count: usize| format!("---\nextra: {}{}\n---\n", "[".repeat(count), "]".repeat(count));
    let told = wrong_agent(&deep(value::DEPTH_MAX + 1));
    assert!(told.contains("it is nested too deeply"), "{told}");
    // TOML's parser has a limit of its own: exceeding it is an error, not a crash.
    let told = wrong(&format!("x = {}{}", "[".repeat(10_000), "]".repeat(10_000)));
    assert!(told.starts_with("wellspring.toml:1:"), "{told}");
}

/// Every setting, and the resulting configuration.
#[test]
fn everything_is_read() {
    let config = read(&[
        (FILE, include_str!("tests/whole.toml")),
        ("agents/poet.md", include_str!("tests/poet.md")),
        ("agents/README.md", "Not an agent."),
        ("schema.json", r#"{"type": "object"}"#),
    ]);
    let mut config = config.unwrap_or_else(|problems| panic!("{problems}"));
    // The temporary directory differs between runs; everything else must not.
    let folder = config.file.as_ref().unwrap().parent().unwrap().to_owned();
    config.file = None;
    let shown = without(&format!("{config:#?}"), &folder);
    assert!(!shown.contains("sk-secret"), "a key is never shown: {shown}");
    insta::assert_snapshot!(shown);
    // Contains every key, so that this test covers all of them.
    let whole = concat!(include_str!("tests/whole.toml"), include_str!("tests/poet.md"));
    for table in &*keys::ALL {
        for key in &table.keys {
            assert!(whole.contains(key.name), "{} {}", table.title, key.name);
        }
    }
}

#[test]
fn without_a_file_the_usual_providers_are_there() {
    let config = Config::without_file();
    let names: Vec<_> = config.providers.keys().map(|name| &**name).collect();
    assert_eq!(names, ["anthropic", "gemini", "ollama", "openai"]);
    assert!(config.agents.is_empty() && config.demo == DemoConfig::Unset);
}

/// `docs/configuration.md` contains the tables of `keys.md`. To write them again, run this test with
/// `WELLSPRING_WRITE_DOCS=1`.
#[test]
fn the_documentation_has_every_key() {
    const BEGIN: &str = "<!-- keys: written from `keys.md` by a test -->\n\n";
    const END: &str = "<!-- end of keys -->\n";
    let mut tables = keys::DECLARED.to_owned();
    tables.push_str("\n### Built-in tools\n\n");
    let names: Vec<_> = agent::TOOLS.iter().map(|(name, _)| format!("`{name}`")).collect();
    tables.push_str(&format!("{}. Each is opt-in.\n\n", names.join(", ")));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if std::env::var_os("WELLSPRING_WRITE_DOCS").is_some() {
        std::fs::write(&file, format!("{before}{BEGIN}{tables}{END}{after}")).unwrap();
    } else {
        assert_eq!(found, tables, "run this test with WELLSPRING_WRITE_DOCS=1");
    }
}

#[test]
fn calls_are_queued_as_configured() {
    let config = read(&[(
        FILE,
        "[agents.a]\nmodel = \"openai\"\nqueue = \"sequential\"\ntool_order = \"parallel_first\"\n\
         [agents.a.queue_rules.write_file]\nmode = \"parallel\"\npriority = -5\n\
         [agents.b]\nmodel = \"openai\"",
    )])
    .unwrap();
    use wellspring_core::ToolMode;
    use wellspring_engine::{QueueRule, ToolOrder};
    let a = &config.agents["a"];
    assert_eq!((a.queue, a.tool_order), (ToolMode::Sequential, ToolOrder::ParallelFirst));
    let rule = QueueRule { mode: Some(ToolMode::Parallel), priority: Some(-5) };
    assert_eq!(a.queue_rules, [("write_file".into(), rule)].into());
    let b = &config.agents["b"];
    assert_eq!((b.queue, b.tool_order), (ToolMode::Parallel, ToolOrder::AsCalled));
    assert!(b.queue_rules.is_empty());
}

/// The configuration in `docs/deploy/three-nodes` is valid.
#[test]
fn the_layout_of_three_nodes_is_valid() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/deploy/three-nodes/wellspring.toml");
    let config = Config::read(&file, &|_| None).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(config.store.kind, settings::StoreKind::Nats);
    assert_eq!(config.store.nats.replicas, Some(config.store.nats.monitors.len()));
}
