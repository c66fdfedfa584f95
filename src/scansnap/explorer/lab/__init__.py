"""What the page can do only beside Python: trained text models, probes' files, and verdicts on any set-up."""
