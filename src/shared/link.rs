//! Names of shared memory: small files, locked while their owner lives, and unlinked with it.

use std::ffi::CString;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Weak};

use pyo3::prelude::*;

use crate::cpython::fork::Lock;
use crate::shared::descriptor::{c_path, done, open};
use crate::shared::os_error;

/// A locked file, and its path once it has one.
struct Locked {
    file: Lock<Option<File>>,
    path: PathBuf,
    /// The process that made it. A fork has the object, too.
    pid: u32,
}

/// Those of this process.
static LOCKED: Lock<Vec<Weak<Locked>>> = Lock::new(Vec::new());

impl Locked {
    /// Unlinks the path, if it still is that of the file, and ends the lock; in another process only closes the file.
    fn end(&self) {
        // Closed at the end: until then nobody else takes the name for one that was left.
        let Some(file) = self.file.lock().take() else {
            return;
        };
        if self.pid != process::id() {
            return;
        }
        let (Ok(mine), Ok(found)) = (file.metadata(), self.path.symlink_metadata()) else {
            return;
        };
        if (mine.dev(), mine.ino()) == (found.dev(), found.ino()) {
            // Nothing else can be done for one that cannot be removed.
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.end();
    }
}

/// A file of mode 0600 with these bytes, locked by this process, that `link` gives its path.
///
/// It is unlinked with this object, at the end of the interpreter, or by ``close``. A fork has neither its lock nor the
/// right to unlink it.
#[pyclass(frozen, module = "dlx._core")]
pub(crate) struct LinkedFile(Arc<Locked>);

#[pymethods]
impl LinkedFile {
    /// Make the file, without a path yet, in the folder that ``path`` is in.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, data: &[u8]) -> PyResult<Self> {
        let folder = c_path(path.parent().map(PathBuf::from).unwrap_or_default())?;
        let failed = |error: io::Error| os_error(py, &error);
        let flags = libc::O_TMPFILE | libc::O_RDWR;
        let mut file = File::from(open(&folder, flags, 0o600).map_err(failed)?);
        // Whatever the umask has taken.
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(failed)?;
        file.write_all(data).map_err(failed)?;
        lock(&file).map_err(failed)?;
        let locked = Arc::new(Locked {
            file: Lock::new(Some(file)),
            path,
            pid: process::id(),
        });
        let mut all = LOCKED.lock();
        all.retain(|each| each.strong_count() > 0);
        all.push(Arc::downgrade(&locked));
        Ok(Self(locked))
    }

    /// Give the file its path; return False if that is in use.
    fn link(&self, py: Python<'_>) -> PyResult<bool> {
        let path = c_path(self.0.path.clone())?;
        let linked = match &*self.0.file.lock() {
            Some(file) => link(file, &path),
            None => Err(io::Error::from_raw_os_error(libc::EBADF)),
        };
        match linked {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(os_error(py, &error)),
        }
    }

    /// Unlink it, and end the lock.
    fn close(&self) {
        self.0.end();
    }
}

/// Takes a lock on all of a file, which belongs to the open file: the kernel ends it with the last descriptor.
fn lock(file: &File) -> io::Result<()> {
    // SAFETY: a struct of numbers; zeros mean the whole file.
    let mut asked: libc::flock = unsafe { zeroed() };
    asked.l_type = libc::F_WRLCK as _;
    asked.l_whence = libc::SEEK_SET as _;
    // SAFETY: the command takes a pointer to such a struct, which it reads.
    done(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut asked) })
}

/// Gives a file without a path one.
fn link(file: &File, path: &CString) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both paths end with a null byte.
    done(unsafe { libc::linkat(here, from.as_ptr(), here, path.as_ptr(), follow) })
}

/// Unlinks the names of this process; in a child that has begun with a fork, closes the files of its parent's.
#[pyfunction]
pub(crate) fn end_links() {
    let all = std::mem::take(&mut *LOCKED.lock());
    for each in all.iter().filter_map(Weak::upgrade) {
        each.end();
    }
}
