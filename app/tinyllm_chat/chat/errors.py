"""What the chat layer refuses knowingly. A message is one line that a user can act on."""


class ChatError(Exception):
    """Base class; catching it catches every refusal of this layer."""


class SettingsError(ChatError, ValueError):
    """A setting that does not exist, or a value that it cannot take."""


class TranscriptError(ChatError):
    """A transcript that cannot be read or written."""


class HistoryError(ChatError):
    """The index of chats cannot be read or made."""


class ExportError(ChatError):
    """A document that cannot be written, or in which there is no chat."""


class SessionError(ChatError):
    """Something that cannot be done with the chat as it is now."""


class CatalogueError(ChatError):
    """The list of downloadable models is missing or wrong."""


class ModelNotFoundError(ChatError):
    """No file, no model in the models folder and no catalogue entry has that name."""


class DownloadError(ChatError):
    """A model that could not be downloaded; nothing half done is left behind."""


class DownloadCancelled(DownloadError):
    """The user stopped a download."""


def reason_of(error: Exception) -> str:
    """What the system says is wrong, without the file that it is about; of other errors their own words."""
    return str(getattr(error, "strerror", None) or error)
