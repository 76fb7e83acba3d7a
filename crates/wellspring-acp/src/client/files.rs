//! Files that an agent reads and writes through us, below its working directory only.

use std::io::{Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde_json::{Value, json};

use super::config::FileAccess;
use super::error::AcpError;
use crate::rpc::RpcError;

/// Bytes of a file that is read or written: what fits in a message and in a context window.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A working directory, and the access to it.
#[derive(Clone, Debug)]
pub(super) struct Files {
    root: PathBuf,
    /// An open handle of the directory: no path and no link leads out of it.
    dir: Arc<Dir>,
    access: FileAccess,
}

impl Files {
    pub(super) fn open(root: &Path, access: FileAccess) -> Result<Self, AcpError> {
        let opened = root.canonicalize().and_then(|root| {
            let dir = Dir::open_ambient_dir(&root, ambient_authority())?;
            Ok((root, dir))
        });
        let (root, dir) = opened.map_err(|error| AcpError::directory(root, &error))?;
        Ok(Self { root, dir: Arc::new(dir), access })
    }

    /// The directory's real path.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// `fs/read_text_file`.
    pub(super) async fn read(self, params: Value) -> Result<Value, RpcError> {
        if self.access == FileAccess::None {
            return Err(RpcError::invalid("files are not read here"));
        }
        let path = self.below(&params["path"])?;
        let line = params["line"].as_u64().unwrap_or(1).max(1);
        let limit = params["limit"].as_u64();
        let dir = self.dir;
        let content = blocking(move || {
            let mut text = String::new();
            let file = dir.open(&path).map_err(|error| told(&path, &error))?;
            file.take(FILE_BYTES_MAX + 1)
                .read_to_string(&mut text)
                .map_err(|error| told(&path, &error))?;
            if text.len() as u64 > FILE_BYTES_MAX {
                let limit = format!("{} has more than {FILE_BYTES_MAX} bytes", path.display());
                return Err(RpcError::failed(limit));
            }
            Ok(text)
        })
        .await?;
        let lines = content.split_inclusive('\n').skip(usize::try_from(line - 1).unwrap_or(0));
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let content: String = lines.take(limit).collect();
        Ok(json!({"content": content}))
    }

    /// `fs/write_text_file`.
    pub(super) async fn write(self, mut params: Value) -> Result<Value, RpcError> {
        if self.access != FileAccess::Write {
            return Err(RpcError::invalid("files are not written here"));
        }
        let path = self.below(&params["path"])?;
        let Value::String(content) = params["content"].take() else {
            return Err(RpcError::invalid("there is no content to write"));
        };
        if content.len() as u64 > FILE_BYTES_MAX {
            let limit = format!("at most {FILE_BYTES_MAX} bytes are written at once");
            return Err(RpcError::invalid(limit));
        }
        let dir = self.dir;
        blocking(move || {
            if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
                dir.create_dir_all(folder).map_err(|error| told(folder, &error))?;
            }
            let mut file = dir.create(&path).map_err(|error| told(&path, &error))?;
            file.write_all(content.as_bytes()).map_err(|error| told(&path, &error))
        })
        .await?;
        Ok(json!({}))
    }

    /// A directory below the root, for a command to run in.
    pub(super) fn folder(&self, path: &Value) -> Result<PathBuf, RpcError> {
        if path.is_null() {
            return Ok(self.root.clone());
        }
        let folder = self.below(path)?;
        let folder = if folder == Path::new("") { PathBuf::from(".") } else { folder };
        // Follows links, but not out of the root.
        let real = self.dir.canonicalize(&folder).map_err(|error| told(&folder, &error))?;
        Ok(self.root.join(real))
    }

    /// A path relative to the root. A link that leads out of it is refused when it is used.
    fn below(&self, path: &Value) -> Result<PathBuf, RpcError> {
        let Some(path) = path.as_str().map(Path::new) else {
            return Err(RpcError::invalid("there is no path"));
        };
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        let inside = relative.components().all(|it| {
            matches!(it, Component::Normal(_) | Component::CurDir | Component::ParentDir)
        });
        if !inside {
            let root = self.root.display();
            let why =
                format!("{} is not below {root}, and only what is can be used", path.display());
            return Err(RpcError::invalid(why));
        }
        Ok(relative.to_owned())
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RpcError> + Send + 'static,
) -> Result<T, RpcError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(RpcError::failed("it could not be done")))
}

fn told(path: &Path, error: &std::io::Error) -> RpcError {
    let message = format!("{}: {error}", path.display());
    if error.kind() == std::io::ErrorKind::NotFound {
        RpcError::not_found(message)
    } else {
        RpcError::failed(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("work");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
        let files = Files::open(&root, FileAccess::Write).unwrap();
        (folder, files)
    }

    fn path(files: &Files, name: &str) -> String {
        files.root().join(name).display().to_string()
    }

    #[tokio::test]
    async fn files_are_written_and_read_by_lines() {
        let (_folder, files) = files();
        let path = path(&files, "a/b.txt");
        files.clone().write(json!({"path": path, "content": "1\n2\n3\n4"})).await.unwrap();
        for (params, want) in [
            (json!({"path": path}), "1\n2\n3\n4"),
            (json!({"path": path, "line": 2, "limit": 2}), "2\n3\n"),
            (json!({"path": path, "line": 4}), "4"),
            (json!({"path": path, "line": 9}), ""),
            (json!({"path": "a/b.txt", "limit": 1}), "1\n"),
        ] {
            let read = files.clone().read(params.clone()).await.unwrap();
            assert_eq!(read, json!({"content": want}), "{params}");
        }
    }

    #[tokio::test]
    async fn nothing_leads_out_of_the_working_directory() {
        let (folder, files) = files();
        let outside = folder.path().canonicalize().unwrap().join("secret");
        for bad in [
            outside.display().to_string(),
            path(&files, "../secret"),
            path(&files, "link"),
            "../secret".into(),
            "/etc/passwd".into(),
        ] {
            let read = files.clone().read(json!({"path": bad})).await;
            assert!(read.is_err(), "{bad} was read");
            let write = files.clone().write(json!({"path": bad, "content": "x"})).await;
            assert!(write.is_err(), "{bad} was written");
            assert!(files.folder(&json!(bad)).is_err(), "{bad} was entered");
        }
        assert_eq!(std::fs::read_to_string(outside).unwrap(), "secret");
        assert_eq!(files.folder(&Value::Null).unwrap(), files.root());
    }

    #[tokio::test]
    async fn what_is_too_large_or_not_allowed_is_refused() {
        let (_folder, files) = files();
        let large = vec![b'x'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1];
        std::fs::write(files.root().join("large"), &large).unwrap();
        assert!(files.clone().read(json!({"path": "large"})).await.is_err());
        let content = String::from_utf8(large).unwrap();
        assert!(files.clone().write(json!({"path": "x", "content": content})).await.is_err());
        let readable = Files { access: FileAccess::Read, ..files.clone() };
        assert!(readable.write(json!({"path": "x", "content": "x"})).await.is_err());
        let closed = Files { access: FileAccess::None, ..files };
        assert!(closed.read(json!({"path": "large"})).await.is_err());
    }
}
