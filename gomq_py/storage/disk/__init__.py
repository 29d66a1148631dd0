"""The interface to the file system: every change of a file or folder, and the data folder itself."""
