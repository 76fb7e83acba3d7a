//! Rules that the compiler does not check: dependencies between crates, and what files may
//! name.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test, in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::dependencies::Deny;
use xtask::workspace::{Package, UNPUBLISHED, Workspace};

/// Each row: a crate, the only crates of this workspace that it may use, and further crates
/// that only its tests may use (besides the testkit).
///
/// A crate without a row fails the test: decide its place before you create it.
const ALLOWED: &[(&str, &[&str], &[&str])] = &[
    ("wellspring-core", &[], &[]),
    ("wellspring-wire", &["wellspring-core"], &[]),
    ("wellspring-log", &["wellspring-core"], &[]),
    // Its tests use scripted models.
    ("wellspring-engine", &["wellspring-core", "wellspring-log"], &["wellspring-models"]),
    // Its tests check how the engine handles each provider's faults.
    (
        "wellspring-models",
        &["wellspring-core", "wellspring-wire"],
        &["wellspring-engine", "wellspring-log"],
    ),
    // It uses the shared framing of events.
    ("wellspring-mcp", &["wellspring-core", "wellspring-wire"], &[]),
    // It drives agents on other machines; its tests run them in the engine.
    (
        "wellspring-remote",
        &["wellspring-core", "wellspring-wire"],
        &["wellspring-engine", "wellspring-log"],
    ),
    // It drives ACP agents for the engine, and offers the engine's agents to ACP clients.
    (
        "wellspring-acp",
        &[
            "wellspring-core",
            "wellspring-wire",
            "wellspring-log",
            "wellspring-engine",
            "wellspring-mcp",
        ],
        &["wellspring-models"],
    ),
    (
        "wellspring",
        &[
            "wellspring-core",
            "wellspring-wire",
            "wellspring-log",
            "wellspring-engine",
            "wellspring-models",
            "wellspring-mcp",
            "wellspring-acp",
        ],
        &[],
    ),
    (
        "wellspring-cli",
        &[
            "wellspring",
            "wellspring-mcp",
            "wellspring-acp",
            "wellspring-remote",
            "wellspring-channels",
            "wellspring-core",
            "wellspring-wire",
            "wellspring-log",
            "wellspring-engine",
            "wellspring-models",
            "wellspring-server",
        ],
        &[],
    ),
    (
        "wellspring-server",
        &["wellspring-core", "wellspring-wire", "wellspring-log", "wellspring-engine"],
        &["wellspring-models"],
    ),
    // Chat networks act on runs like any other surface.
    (
        "wellspring-channels",
        &["wellspring-core", "wellspring-wire", "wellspring-log", "wellspring-engine"],
        &["wellspring-models"],
    ),
    // The crates that an application uses to mount the server.
    (
        "example-mounted",
        &["wellspring-engine", "wellspring-log", "wellspring-models", "wellspring-server"],
        &[],
    ),
    ("wellspring-testkit", &["wellspring-core"], &[]),
    ("xtask", &[], &[]),
];

/// Each row: a crate, and the packages that must not be in its dependency tree.
const NEVER: &[(&str, &[&str])] = &[
    ("wellspring-core", &["tokio", "tokio-util", "reqwest", "rusqlite", "tracing"]),
    ("wellspring-wire", &["tokio", "tokio-util", "reqwest", "rusqlite", "tracing"]),
    ("wellspring-log", &["reqwest", "crossterm"]),
    ("wellspring-engine", &["rusqlite", "crossterm", "opentelemetry", "tracing-opentelemetry"]),
    ("wellspring-models", &["rusqlite", "crossterm"]),
];

/// Lines that every manifest contains, so that the root manifest sets their values.
const INHERITED: &[&str] = &[
    "version.workspace = true",
    "edition.workspace = true",
    "rust-version.workspace = true",
    "license.workspace = true",
    "repository.workspace = true",
    "[lints]\nworkspace = true",
];

/// Further lines in the manifest of a published crate.
const PUBLISHED: &[&str] = &[
    "publish.workspace = true",
    "readme = \"README.md\"",
    "keywords = [",
    "categories = [",
    "[package.metadata.docs.rs]",
];

#[test]
fn dependencies_point_inwards() {
    let workspace = Workspace::load().unwrap();
    let ours = |name: &str| workspace.packages.iter().any(|package| package.name == name);
    let mut wrong = Vec::new();
    for package in &workspace.packages {
        let Some((_, allowed, in_tests)) = ALLOWED.iter().find(|row| row.0 == package.name) else {
            wrong.push(format!("{} has no row in the table", package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|it| ours(&it.name)) {
            let name = dependency.name.as_str();
            let is_dev = dependency.kind.as_deref() == Some("dev");
            let fine = allowed.contains(&name)
                // A crate's tests may enable more of its own features.
                || is_dev
                    && (name == "wellspring-testkit"
                        || name == package.name
                        || in_tests.contains(&name));
            if !fine {
                wrong.push(format!("{} must not use {name}", package.name));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// `deny.toml` allows the licences, duplicates and sources of all dependencies.
#[test]
fn dependencies_are_allowed() {
    let root = Workspace::load().unwrap().root;
    let deny = Deny::load(&root).unwrap();
    let packages = deny.packages(&root).unwrap();
    assert!(packages.len() > 100, "only {} packages were found", packages.len());
    assert_eq!(deny.check(&packages), [""; 0]);
}

#[test]
fn inner_crates_do_without_the_outside_world() {
    let mut wrong = Vec::new();
    for (package, never) in NEVER {
        let tree = dependency_tree(package);
        let used = never.iter().filter(|name| tree.iter().any(|package| package == **name));
        wrong
            .extend(used.map(|name| format!("{package} must not use {name}, not even indirectly")));
    }
    assert_eq!(wrong, [""; 0]);
}

/// The names of all packages that a crate is built with, as `cargo tree` lists them.
fn dependency_tree(package: &str) -> Vec<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--package", package]);
    let output = tree.current_dir(Workspace::load().unwrap().root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let names: Vec<String> =
        lines.lines().filter_map(|line| line.split(' ').next()).map(Into::into).collect();
    assert!(
        names.iter().any(|name| name == "serde_json"),
        "{package} has no dependencies: {lines}"
    );
    names
}

#[test]
fn manifests_inherit_what_all_share() {
    let mut wrong = Vec::new();
    for Package { name, manifest_path, .. } in Workspace::load().unwrap().packages {
        let manifest = std::fs::read_to_string(&manifest_path).unwrap();
        for line in INHERITED {
            if !format!("\n{manifest}\n").contains(&format!("\n{line}\n")) {
                wrong.push(format!("{name} does not say {line:?}"));
            }
        }
        if UNPUBLISHED.contains(&name.as_str()) {
            if !manifest.contains("\npublish = false\n") {
                wrong.push(format!("{name} is for this repository only and must not be published"));
            }
        } else {
            let missing = PUBLISHED.iter().filter(|it| !manifest.contains(&format!("\n{it}")));
            wrong.extend(missing.map(|line| format!("{name} does not say {line:?}")));
            for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
                if !manifest_path.with_file_name(licence).is_file() {
                    wrong.push(format!("{name} has no {licence}"));
                }
            }
        }
        // An example's name starts with `example-`, so that it is not mistaken for a library
        // crate.
        let folder = name.strip_prefix("example-").unwrap_or(&name);
        if manifest_path.parent().and_then(Path::file_name).is_none_or(|it| *it != *folder) {
            wrong.push(format!("{name} does not lie in a folder of its name"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn every_target_says_what_it_is() {
    let workspace = Workspace::load().unwrap();
    let mut wrong = Vec::new();
    for package in &workspace.packages {
        for target in &package.targets {
            let source = std::fs::read_to_string(&target.src_path).unwrap();
            if !source.starts_with("//! ") && !source.starts_with("#![doc = include_str!(") {
                wrong.push(format!("{} does not begin with its docs", target.src_path.display()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// Other people have other machines and may use other mirrors.
#[test]
fn no_file_names_a_machine() {
    // Written in pieces, so that this file does not contain the names.
    let folders = [["", "root", ""].join("/"), ["", "work", ""].join("/")];
    let mut wrong = Vec::new();
    for (file, text) in tracked_files() {
        for (index, line) in text.lines().enumerate() {
            let named = folders.iter().any(|folder| names_folder(line, folder));
            if named || names_registry(line) {
                wrong.push(format!("{}:{}: {}", file.display(), index + 1, line.trim()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// Dialects define how their streams begin, pause and end; the streaming code names no
/// protocol.
#[test]
fn streams_name_no_protocol() {
    const PROTOCOLS: [&str; 26] = [
        "ag_ui",
        "ag-ui",
        "agui",
        "acp",
        "ai_sdk",
        "ai-sdk",
        "vercel",
        "use_ai",
        "use-ai",
        "socket",
        "openai",
        "anthropic",
        "gemini",
        "ollama",
        "mcp",
        "dify",
        "openclaw",
        "telegram",
        "whatsapp",
        "slack",
        "discord",
        "thought_event",
        "stream_delta",
        "streaming_event",
        "turn_event",
        "agent_event",
    ];
    let mut wrong = Vec::new();
    let mut looked_at = 0;
    for (file, text) in tracked_files() {
        let path = file.to_string_lossy();
        let is_stream = path == "crates/wellspring-server/src/stream.rs"
            || path.starts_with("crates/wellspring-server/src/stream/");
        if !is_stream || path.ends_with("/tests.rs") {
            continue;
        }
        looked_at += 1;
        for (index, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            if PROTOCOLS.iter().any(|name| lower.contains(name)) || line.contains("DialectName::") {
                wrong.push(format!("{path}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(looked_at >= 3 || tracked_files().is_empty(), "the stream's files have moved");
}

/// A source numbers its own parts as `LocalPart`s; only the engine knows a run's `PartId`s.
#[test]
fn sources_number_their_own_parts() {
    let mut wrong = Vec::new();
    let mut looked_at = 0;
    for (file, text) in tracked_files() {
        let path = file.to_string_lossy();
        let is_reader = path.starts_with("crates/wellspring-wire/src/") && path.contains("/read");
        let is_source = is_reader
            || path.starts_with("crates/wellspring-models/src/")
            || path.starts_with("crates/wellspring-remote/src/");
        if !is_source || path.contains("test") {
            continue;
        }
        looked_at += 1;
        for (index, line) in text.lines().enumerate() {
            if line.contains("PartId(") {
                wrong.push(format!("{path}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(looked_at >= 20 || tracked_files().is_empty(), "the sources' files have moved");
}

/// Surfaces act on runs through `Control`, which checks permissions. They never name the log,
/// the store, an inbox or the audit log.
#[test]
fn surfaces_act_through_control() {
    const SURFACES: [&str; 8] = [
        "crates/wellspring-server/src/app/",
        "crates/wellspring-server/src/socket",
        "crates/wellspring-server/src/surfaces",
        "crates/wellspring-server/src/webhook_limits.rs",
        "crates/wellspring-channels/src/",
        "crates/wellspring-acp/src/agent",
        "crates/wellspring/src/",
        "crates/wellspring-cli/src/",
    ];
    // These files open the store, and use it for data outside runs (tokens, defaults) or for
    // all runs (checks, backups, deleting damaged runs).
    const OPENERS: [&str; 8] = [
        // Re-exports the contract, for programs with their own store.
        "crates/wellspring/src/lib.rs",
        "crates/wellspring-cli/src/doctor.rs",
        "crates/wellspring-cli/src/store.rs",
        "crates/wellspring-cli/src/setup.rs",
        "crates/wellspring-cli/src/setup/open_store.rs",
        // Stores which process serves a bot, which belongs to no run.
        "crates/wellspring-cli/src/channels/holder.rs",
        "crates/wellspring-cli/src/token.rs",
        "crates/wellspring-cli/src/demo.rs",
    ];
    const NAMES: [&str; 10] = [
        "log()",
        "Store",
        "store()",
        "put_inbox",
        "inbox(",
        "InboxEntry",
        "NewCommand",
        "put_audit",
        "NewAudit",
        "AuditFilter",
    ];
    let mut wrong = Vec::new();
    let mut looked_at = 0;
    for (file, text) in tracked_files() {
        let path = file.to_string_lossy();
        let is_surface = SURFACES.iter().any(|surface| path.starts_with(surface));
        // Tests play stores that fail.
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        if !is_surface || is_test || !path.ends_with(".rs") || OPENERS.contains(&&*path) {
            continue;
        }
        looked_at += 1;
        for (index, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if NAMES.iter().any(|name| names_word(code, name)) {
                wrong.push(format!("{path}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(looked_at >= 40 || tracked_files().is_empty(), "the surfaces' files have moved");
}

/// Every requirement in `docs/requirements` names where it is met and the tests that show it.
/// These files and tests exist.
#[test]
fn requirements_name_tests_that_exist() {
    let root = Workspace::load().unwrap().root;
    let mut wrong = Vec::new();
    let mut rows = 0;
    for (file, text) in tracked_files() {
        let is_table = file.starts_with("docs/requirements")
            && file.extension().is_some_and(|extension| extension == "md");
        if !is_table {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            let Some(row) = table_row(line) else { continue };
            rows += 1;
            let at = format!("{}:{}", file.display(), index + 1);
            wrong
                .extend(check_requirement(&root, &row).into_iter().map(|it| format!("{at}: {it}")));
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(rows > 0 || tracked_files().is_empty(), "the tables of requirements have moved");
}

/// Every promise in `docs/security.md` names tests that exist in the named crates.
#[test]
fn promises_about_security_name_tests_that_exist() {
    let files = tracked_files();
    let Some((_, text)) = files.iter().find(|(file, _)| file.ends_with("docs/security.md")) else {
        assert!(files.is_empty(), "the promises have moved");
        return;
    };
    let exists = |package: &str, test: &str| {
        files.iter().any(|(file, source)| {
            file.starts_with(format!("crates/{package}")) && has_test(source, test)
        })
    };
    let (promises, wrong) = check_promises(text, exists);
    assert_eq!(wrong, [""; 0]);
    assert!(promises > 10, "only {promises} promises were found");
}

/// The number of promises in a text, and their errors. A promise is a paragraph that starts in
/// bold; its last line is `Tests: `a`, `b` (engine), `c` (cli).`
fn check_promises(text: &str, exists: impl Fn(&str, &str) -> bool) -> (usize, Vec<String>) {
    let promised = text.split("\n## ").find(|it| it.starts_with("What is promised"));
    let paragraphs = promised.unwrap_or_default().split("\n\n").filter(|it| it.starts_with("**"));
    let (mut promises, mut wrong) = (0, Vec::new());
    for paragraph in paragraphs {
        promises += 1;
        let title = paragraph.trim_start_matches("**").split("**").next().unwrap_or_default();
        let last = paragraph.trim_end().lines().last().unwrap_or_default();
        let Some(tests) = last.strip_prefix("Tests: ").or_else(|| last.strip_prefix("Test: "))
        else {
            wrong.push(format!("{title:?} names no test"));
            continue;
        };
        // The crate's name follows its tests.
        for group in tests.split_inclusive(')') {
            let (names, package) = group.split_once('(').unwrap_or((group, ""));
            let package = match package.trim_end_matches(')') {
                "wellspring" => "wellspring/".to_owned(),
                short => format!("wellspring-{short}/"),
            };
            for test in names.split('`').skip(1).step_by(2) {
                if !exists(&package, test) {
                    wrong.push(format!("{title:?}: there is no {test} in {package}"));
                }
            }
        }
    }
    (promises, wrong)
}

#[test]
fn promises_are_checked() {
    let exists = |package: &str, test: &str| (package, test) == ("wellspring-engine/", "a");
    let text = "# S\n\n## What is promised\n\n**One.** Yes.\nTest: `a` (engine).\n\n\
                **Two.** No.\nTests: `a` (cli), `b` (engine).\n\n**Three.**\n\n## Other\n\n**Four.**\n";
    let wrong = [
        "\"Two.\": there is no a in wellspring-cli/",
        "\"Two.\": there is no b in wellspring-engine/",
        "\"Three.\" names no test",
    ];
    assert_eq!(check_promises(text, exists), (3, wrong.map(str::to_owned).to_vec()));
}

/// The cells of a table row; `None` for a header and for other lines.
fn table_row(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = inner.split(" | ").map(str::trim).collect();
    let is_head = cells.first() == Some(&"requirement") || inner.trim().starts_with("---");
    (!is_head).then_some(cells)
}

/// The errors in a row: `requirement
/// where
/// tests`.
fn check_requirement(root: &Path, row: &[&str]) -> Vec<String> {
    let [_, place, tests] = row else {
        return vec![format!("a row has 3 cells, this one has {}", row.len())];
    };
    let mut wrong = Vec::new();
    let path = place.trim_matches('`').split("::").next().unwrap_or_default();
    if path.is_empty() || !root.join(path).exists() {
        wrong.push(format!("{path:?} does not exist"));
    }
    let mut named = 0;
    for test in tests.split_whitespace().map(|test| test.trim_matches('`')) {
        named += 1;
        let Some((path, function)) = test.split_once("::") else {
            wrong.push(format!("{test:?} is not `path::function`"));
            continue;
        };
        let source = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        if !has_test(&source, function) {
            wrong.push(format!("{path:?} has no test {function:?}"));
        }
    }
    if named == 0 {
        wrong.push("no test is named".to_owned());
    }
    wrong
}

/// Whether a source has a test of this name: a function under a test attribute, or a test of the
/// suite that every store runs.
fn has_test(source: &str, name: &str) -> bool {
    let of_suite = format!("pub async fn {name}(subject: &impl Subject)");
    source.contains(&of_suite)
        || source.find(&format!("fn {name}(")).is_some_and(|at| {
            let above = source[..at].rsplit("\n\n").next().unwrap_or_default();
            above.lines().any(|line| line.trim_start().starts_with("#[") && line.contains("test"))
        })
}

#[test]
fn rows_of_requirements_are_checked() {
    let root = Workspace::load().unwrap().root;
    let check = |line: &str| check_requirement(&root, &table_row(line).unwrap());
    let here = "crates/xtask/tests/tidy.rs";
    assert_eq!(
        check(&format!("| a | `{here}` | `{here}::rows_of_requirements_are_checked` |")),
        [""; 0]
    );
    let missing = format!("| a | `{here}` | `{here}::no_such_{}` |", "test");
    assert_eq!(check(&missing).len(), 1);
    assert_eq!(check("| a | `no/such/file.rs` |  |").len(), 2);
    assert_eq!(check("| only one cell |").len(), 1);
    assert_eq!(table_row("| requirement | where | tests |"), None);
    assert_eq!(table_row("| --- | --- | --- |"), None);
}

/// Whether a line contains a word, not as a part of another word.
fn names_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let ends_open = word.ends_with(is_part);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !(before.is_some_and(is_part) || ends_open && after.is_some_and(is_part))
    })
}

/// Unfinished code is not merged, and ignored tests are not allowed.
#[test]
fn nothing_is_left_open() {
    let words =
        [["todo", "("].join("!"), ["unimplemented", "("].join("!"), ["#", "ignore"].join("[")];
    let mut wrong = Vec::new();
    for (file, text) in tracked_files() {
        if file.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                wrong.push(format!("{}:{}: {}", file.display(), index + 1, line.trim()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn folders_and_registries_are_recognised() {
    let root = ["", "root", ""].join("/");
    let hosts = ["https", "http"].map(|scheme| format!("{scheme}://npm.{}.example/x", "registry"));
    assert!(names_folder(&format!("{root}.cache"), &root));
    assert!(names_folder(&format!("at {root}x"), &root));
    assert!(!names_folder(&format!("src{root}x"), &root));
    assert!(!names_folder("the root / of all", &root));
    assert!(hosts.iter().all(|url| names_registry(&format!("see {url}"))));
    assert!(!names_registry("source = \"registry+https://github.com/rust-lang/crates.io-index\""));
    assert!(!names_registry("a registry, hosted somewhere"));
}

/// Whether a line names a path in a folder. The folder must not be the end of a longer path.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || "._-/~}".contains(c))
    })
}

/// Whether a line contains the URL of a package registry.
fn names_registry(line: &str) -> bool {
    line.match_indices("://").any(|(at, slashes)| {
        let host = &line[at + slashes.len()..];
        let end = host.find(|c: char| !c.is_ascii_alphanumeric() && !".-".contains(c));
        let host = &host[..end.unwrap_or(host.len())];
        ["registry", "hosted", "crates", "debian", "pypi", "npmjs"]
            .iter()
            .any(|it| host.contains(it))
    })
}

/// The text files that git tracks; empty, with a message, outside a clone.
fn tracked_files() -> Vec<(PathBuf, String)> {
    let root = Workspace::load().unwrap().root;
    if !root.join(".git").exists() {
        println!("skipped: this is not a clone, so no file is tracked");
        return Vec::new();
    }
    let mut list = Command::new("git");
    // A new file counts before it is added, because that is when the rules help.
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = list.current_dir(&root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    let text = |name: &str| {
        // Binary files and files that were just deleted are skipped.
        std::fs::read_to_string(root.join(name)).ok().map(|text| (PathBuf::from(name), text))
    };
    names.split_terminator('\0').filter_map(text).collect()
}
