//! The environment of child processes.

/// The environment variables that every child process inherits, if they are set: commands of
/// the shell tool, MCP servers, ACP agents and their terminals. They are enough to find
/// programs, files and certificates, and for the user's language. None of them holds a
/// credential; pass those explicitly when you start a process.
pub const CHILD_ENVIRONMENT: [&str; 18] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "PATH",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
];
