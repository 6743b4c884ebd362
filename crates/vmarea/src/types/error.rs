//! Errors as the calls report them: Linux's numbers.

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $value:literal),* $(,)?) => {
        /// Why a call was refused, with Linux's number.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(i32)]
        pub enum Errno { $($(#[$doc])* $name = $value),* }

        impl Errno {
            /// The error with this number, if a memory call can give it.
            pub fn from_number(number: i32) -> Option<Errno> {
                match number { $($value => Some(Errno::$name),)* _ => None }
            }

            /// Its symbol.
            pub fn name(self) -> &'static str {
                match self { $(Errno::$name => stringify!($name)),* }
            }
        }
    };
}

errnos! {
    /// Not permitted: a limit of rights, or a sealed mapping.
    EPERM = 1,
    /// No such thing.
    ENOENT = 2,
    /// No such process.
    ESRCH = 3,
    /// Interrupted.
    EINTR = 4,
    /// Input or output failed.
    EIO = 5,
    /// Bad file descriptor.
    EBADF = 9,
    /// Not now.
    EAGAIN = 11,
    /// No memory, or no mapping there.
    ENOMEM = 12,
    /// The file or its mapping forbids it.
    EACCES = 13,
    /// Bad address.
    EFAULT = 14,
    /// In use.
    EBUSY = 16,
    /// There is a mapping already.
    EEXIST = 17,
    /// The file cannot be mapped.
    ENODEV = 19,
    /// Invalid argument.
    EINVAL = 22,
    /// Text file busy.
    ETXTBSY = 26,
    /// None left.
    ENOSPC = 28,
    /// Not implemented.
    ENOSYS = 38,
    /// Too large for its type.
    EOVERFLOW = 75,
    /// Not supported for this mapping.
    EOPNOTSUPP = 95,
    /// A poisoned page.
    EHWPOISON = 133,
}

impl Errno {
    /// The number, positive.
    pub fn number(self) -> i32 {
        self as i32
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Errno {}

impl From<vmarea_sync::Exhausted> for Errno {
    fn from(_: vmarea_sync::Exhausted) -> Errno {
        Errno::ENOMEM
    }
}

impl From<vmarea_range_tree::OutOfMemory> for Errno {
    fn from(_: vmarea_range_tree::OutOfMemory) -> Errno {
        Errno::ENOMEM
    }
}
