"""`make release`: everything that users install, from one commit, into one folder.

The same commit gives the same bytes: all times are that of the commit, all archives are sorted, and nothing depends on the folder
or the machine. Only the packages that Debian's mirror has at that time can differ; the provenance names each with its digest.
"""
