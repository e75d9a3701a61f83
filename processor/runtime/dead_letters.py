"""Records that could not be used, kept with their original bytes on the dead-letter topic.

Rules:
    A dead letter keeps the original bytes and key; its headers say from where it came and why.
    Its id is derived from the place of the record, so a replay writes the same.
"""

from processor.codec.dead_letter_codes import Undecodable
from processor.codec.dead_letter_headers import dead_letter_headers, left_out_headers
from processor.runtime.absorb import Message
from processor.runtime.outbox import OutputRecord


class DeadLetterWriter:
    """Writes the dead letters of one input topic; `source` names the writer.

    `bytes_max` is the largest key and value together that the dead-letter topic surely takes.
    """

    def __init__(self, topic: str, input_topic: str, source: str, *, bytes_max: int) -> None:
        self._topic = topic
        self._input_topic = input_topic
        self._source = source
        self._bytes_max = bytes_max

    def write(self, message: Message, refusal: Undecodable) -> OutputRecord:
        """The original bytes and key, with the origin and the code of the refusal as headers.

        A value larger than the topic is sure to take is not copied: topics bound the compressed
        size, so a record may be legal on one topic and, unpacked or packed otherwise, too large for
        another. Its size and digest are headers then, and the origin says where it lies.
        """
        value, key = message.value(), message.key()
        partition, offset = message.partition(), message.offset()
        headers = dead_letter_headers(self._source, self._input_topic, partition, offset, refusal)
        if len(value or b"") + len(key or b"") > self._bytes_max:
            headers += left_out_headers(value)
            value = None
            if len(key or b"") > self._bytes_max:
                key = None
        return OutputRecord(self._topic, key, value, headers)
