"""Text: sources, vocabulary and windows, and the co-occurrence counts that make sequence classes of a corpus."""

from scansnap.corpus.corpus import Corpus, load_corpus
from scansnap.corpus.sources import TextSource, find_corpus
from scansnap.corpus.vocabulary import Vocabulary

__all__ = ["Corpus", "TextSource", "Vocabulary", "find_corpus", "load_corpus"]
